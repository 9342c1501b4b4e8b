"""torchrun --rdzv-backend=mingle: torchrun's agents find each other with mingle.

Each agent runs the program ``mingle``, which waits for all nodes and returns this node's rank and the endpoint of
rank 0. The agent of rank 0 then serves a TCPStore on that port, to which every node has proved a connection. The
workers use the same store.

torch calls ``next_rendezvous`` at the start, and again when workers of this node have failed or when
``num_nodes_waiting`` is not 0. Each call is a rendezvous of all nodes. An agent that starts another rendezvous first
counts itself in the store of the last one, so that the other agents stop their workers and take part too.
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

# The key for the number of agents that have left the world of this store.
LEFT = "mingle/left"

# Variables that torchrun sets for each worker itself: it counts workers, while mingle counts nodes.
AGENTS_OWN = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"}

# The exception for each exit code of mingle. `mingle --help` lists the codes.
ERRORS = {
    2: ValueError,
    3: RendezvousTimeoutError,
    4: RendezvousStateError,
    5: RendezvousConnectionError,
    6: RendezvousTimeoutError,
}


def get_handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """The entry point, which torch calls once. torch calls the result to create a handler."""
    return create_handler


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """Creates a handler from torchrun's options. ValueError for options that mingle does not support."""
    if params.min_nodes != params.max_nodes:
        raise ValueError(
            f"--nnodes={params.min_nodes}:{params.max_nodes}: a world of mingle has a fixed number of nodes; "
            f"give --nnodes={params.max_nodes}"
        )
    # "none" is torchrun's default. With it, all jobs without an ID would meet.
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
    # Seconds. torchrun always sets a timeout, 900 by default.
    timeout = timedelta(seconds=params.get_as_int("timeout", 900) or 900)
    return MingleRendezvous(params.run_id, arguments, timeout)


class MingleRendezvous(RendezvousHandler):
    """A rendezvous for a fixed number of nodes."""

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
        # The workers cannot open another store: the agent of rank 0 listens on MASTER_PORT already.
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        if self._is_closed:
            raise RendezvousClosedError(f"the rendezvous of job {self._run_id} is closed")
        self._leave()
        # Keep the earlier store until all nodes are here: it shows the other agents that this one has left.
        formed = run_mingle(self._arguments)
        export(formed)
        address, port = formed["master"]["address"], formed["master"]["port"]
        rank, world = formed["rank"], formed["world"]
        # Returns when all agents have connected.
        self._store = TCPStore(address, port, world, rank == 0, self._timeout, multi_tenant=True)
        # The agents use this prefix only; the workers use the rest of the store.
        store = PrefixStore("mingle/agents", self._store)
        return RendezvousInfo(store, rank, world, RendezvousStoreInfo(address, port))

    def num_nodes_waiting(self) -> int:
        if self._store is None:
            return 0
        try:
            return self._store.add(LEFT, 0)
        except RuntimeError:
            # The agent of rank 0 has ended, perhaps because it has no restarts left; it would not take part again. If a
            # restart is needed, the workers of this node fail as well, and torch calls next_rendezvous.
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
                pass  # The agent of rank 0, which served the store, has ended.


def run_mingle(arguments: list[str]) -> dict[str, Any]:
    """Runs mingle, which waits for all nodes, and returns its JSON document. mingle's stderr goes to the user."""
    environment = {name: value for name, value in os.environ.items() if name != "MINGLE_OUTPUT"}
    process = subprocess.Popen([program(), *arguments], env=environment, stdout=subprocess.PIPE)
    try:
        output, _ = process.communicate()
    except BaseException:
        # torchrun raises an exception for a signal. On SIGTERM mingle notifies the other nodes before it ends.
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
    """The path of the program in this package, or else of one in PATH."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", "posix_user")]
    found = shutil.which("mingle", path=os.pathsep.join(folders)) or shutil.which("mingle")
    if found is None:
        raise RendezvousError(f"the program mingle is neither in {' nor in '.join(folders)} nor in PATH")
    return found


def export(formed: dict[str, Any]) -> None:
    """Sets the variables for NCCL, Gloo and other libraries in this process, whose environment workers inherit."""
    for name in formed["unset"]:
        os.environ.pop(name, None)
    for name, value in formed["env"].items():
        if name not in AGENTS_OWN and not name.startswith("PET_"):
            os.environ[name] = value
