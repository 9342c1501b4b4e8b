"""torchrun, for torch 2.5, which does not look for other packages' rendezvous: python -m mingle_torchrun."""

from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry
from torch.distributed.run import main

from . import create_handler

# Later versions of torch have done so already, which does no harm.
rendezvous_handler_registry.register("mingle", create_handler)
main()
