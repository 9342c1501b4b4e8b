"""torchrun for torch 2.5, which does not load rendezvous backends of other packages: python -m mingle_torchrun."""

from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
from torch.distributed.run import main

from . import create_handler

# Later versions of torch have registered it already; registering it again is harmless.
rendezvous_handler_registry.register("mingle", create_handler)
main()
