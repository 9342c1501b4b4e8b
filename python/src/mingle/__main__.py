"""``python -m mingle`` is the program ``mingle`` of this package, with the same arguments."""

import os
import shutil
import sys
import sysconfig

scheme = f"{os.name}_user"
folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", scheme), os.environ.get("PATH", os.defpath)]
program = shutil.which("mingle", path=os.pathsep.join(folders))
if program is None:
    sys.exit("mingle: the program is neither beside this Python nor in PATH; install the package again")
os.execv(program, [program, *sys.argv[1:]])
