"""torchrun --rdzv-backend=mingle: torchrun's agents find each other by mingle.

Each agent runs the program ``mingle``, which waits until all nodes are there and says which rank this one has and
where rank 0 is. There the agent of rank 0 then serves a TCPStore, on the very port to which all others have had a
connection; the workers use that store too.

torch calls ``next_rendezvous`` at the start, and again where workers of this node have failed or
``num_nodes_waiting`` is not 0. Each call is a rendezvous of all nodes: whoever takes part again says so in the store
of the last one, so that the other agents stop their workers and come too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from datetime import timedelta
from typing import Any, Callable, Optional

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

__all__ = ["MingleRendezvous", "create_handler", "get_handler"]

# How many agents have left the world that this store belongs to.
LEFT = "mingle/left"

# What each worker is told by its agent, which counts workers where mingle counts nodes.
AGENTS_OWN = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"}

# By the exit code of mingle, which `mingle --help` lists.
ERRORS = {
    2: ValueError,
    3: RendezvousTimeoutError,
    4: RendezvousStateError,
    5: RendezvousConnectionError,
    6: RendezvousTimeoutError,
}


def get_handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """The entry point: torch calls it once, and what it returns for each rendezvous."""
    return create_handler


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Judges what torchrun was given."""
    if params.min_nodes != params.max_nodes:
        raise ValueError(
            f"--nnodes={params.min_nodes}:{params.max_nodes}: a world of mingle has a fixed number of nodes; "
            f"give --nnodes={params.max_nodes}"
        )
    # torchrun's default, by which all jobs without an ID would meet.
    if not params.run_id or params.run_id == "none":
        raise ValueError("--rdzv-backend=mingle needs the job's name: --rdzv-id=ID, the same on every node")
    unknown = sorted(set(params.config) - {"join_timeout", "timeout"})
    if unknown:
        raise ValueError(
            f"--rdzv-conf: {', '.join(unknown)}: with --rdzv-backend=mingle there are join_timeout and timeout; "
            "options of mingle are variables, such as MINGLE_INTERFACE"
        )
    arguments = ["--format=json", f"--job-id={params.run_id}", f"--world={params.max_nodes}"]
    endpoint = (params.endpoint or "").strip()
    if endpoint:
        arguments.append(f"--seed={endpoint}")
    join_timeout = params.get_as_int("join_timeout")
    if join_timeout is not None:
        arguments.append(f"--timeout={join_timeout}")
    # torchrun always gives one, 900 s unless told otherwise.
    timeout = timedelta(seconds=params.get_as_int("timeout", 900) or 900)
    return MingleRendezvous(params.run_id, arguments, timeout)


class MingleRendezvous(RendezvousHandler):
    """A rendezvous for as many nodes as there were in the first."""

    def __init__(self, run_id: str, arguments: list[str], timeout: timedelta) -> None:
        self._run_id = run_id
        self._arguments = arguments
        self._timeout = timeout
        self._store: Optional[TCPStore] = None
        self._is_closed = False

    def get_backend(self) -> str:
        return "mingle"

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        # Nothing else can listen on MASTER_PORT of rank 0, where the agent's own store is.
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        if self._is_closed:
            raise RendezvousClosedError(f"the rendezvous of job {self._run_id} is closed")
        self._leave()
        # The earlier store stays until all are here: others learn from it that this agent has left.
        formed = run_mingle(self._arguments)
        export(formed)
        address, port = formed["master"]["address"], formed["master"]["port"]
        rank, world = formed["rank"], formed["world"]
        # Returns when all agents have come.
        self._store = TCPStore(address, port, world, rank == 0, self._timeout, multi_tenant=True)
        # Workers have the whole store for themselves, but for this.
        store = PrefixStore("mingle/agents", self._store)
        return RendezvousInfo(store, rank, world, RendezvousStoreInfo(address, port))

    def num_nodes_waiting(self) -> int:
        if self._store is None:
            return 0
        try:
            return self._store.add(LEFT, 0)
        except RuntimeError:
            # The agent of rank 0 is gone, perhaps since it has no restarts left. To wait for it would be in vain then;
            # if there is something to restart, the workers fail too.
            return 0

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._is_closed = True

    def shutdown(self) -> bool:
        self._is_closed = True
        return True

    def _leave(self) -> None:
        if self._store is not None:
            try:
                self._store.add(LEFT, 1)
            except RuntimeError:
                pass  # Nobody is left to be told by it.


def run_mingle(arguments: list[str]) -> dict[str, Any]:
    """Waits for all nodes. What mingle says of it on stderr, the user sees."""
    environment = {name: value for name, value in os.environ.items() if name != "MINGLE_OUTPUT"}
    process = subprocess.Popen([program(), *arguments], env=environment, stdout=subprocess.PIPE)
    try:
        output, _ = process.communicate()
    except BaseException:
        # torchrun makes an exception of a signal. Ended by one that it can see, mingle tells the others.
        process.terminate()
        process.wait()
        raise
    if process.returncode == 0:
        return json.loads(output)
    try:
        message = json.loads(output)["error"]["message"]
    except (ValueError, KeyError):
        message = f"it ended with code {process.returncode}"
    raise ERRORS.get(process.returncode, RendezvousError)(f"mingle: {message}")


def program() -> str:
    """The program of this package, wherever it was installed, or one in PATH."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    found = shutil.which("mingle", path=os.pathsep.join(folders)) or shutil.which("mingle")
    if found is None:
        raise RendezvousError(f"the program mingle is neither in {' nor in '.join(folders)} nor in PATH")
    return found


def export(formed: dict[str, Any]) -> None:
    """What NCCL, Gloo and their like are to know: workers inherit the agent's environment."""
    for name in formed["unset"]:
        os.environ.pop(name, None)
    for name, value in formed["env"].items():
        if name not in AGENTS_OWN and not name.startswith("PET_"):
            os.environ[name] = value
