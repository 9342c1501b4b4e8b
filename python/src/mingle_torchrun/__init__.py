"""torchrun --rdzv-backend=mingle: torchrun's agents find each other with mingle.

Each agent is a node that stays with its world (:class:`mingle.RunningWorld`), on a thread that torch cannot block:

* ``next_rendezvous`` waits for the world of the next generation. The agent of rank 0 serves a TCPStore on the socket on
  which it has listened, so the port is never free; the agents and their workers use this store. The call returns once all
  agents have reached the store, and begins again if the world ends earlier.
* ``num_nodes_waiting``, which torch asks every 0.1 s while its workers are healthy, is 1 once the world is over: another
  agent restarts its workers, leaves or is dead, or the world takes in a newcomer. The agents then stop their workers and
  meet again, which uses up no restart.
* ``shutdown`` closes the rendezvous for all agents. After success it waits until all agents have succeeded; agents that
  wait for a seat then end with code 0. After a failure the other agents end too. torch does not say whether the workers
  have succeeded: mingle looks whether torch handles an exception while it calls ``shutdown``.

An agent that a signal asks to end does not close the rendezvous: it leaves at the end of its process, and the other agents
wait for a replacement. While the agents meet, torch keeps the store of the last world, so the next world takes another port.

A world that ends with the exit code ``AGAIN`` starts again; every other exit code closes the rendezvous. If an agent closes
the rendezvous while other agents start again, it takes part once more and closes the next world: nothing else reaches
agents that wait for each other.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from datetime import timedelta
from typing import Any, Callable, Optional

import mingle
from mingle import _set
from mingle.torch import TAKES_SOCKET, open_store
from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import api
from torch.distributed.elastic.rendezvous.api import RendezvousClosedError, RendezvousError

__all__ = ["MingleRendezvous", "create_handler", "get_handler"]

log = logging.getLogger("mingle")

# The exit code of a world whose agents start their workers again: EX_TEMPFAIL of sysexits.h, "try again".
AGAIN = 75
# That of torchrun.
CLOSED = 1

# Variables that torchrun sets for each worker itself: it counts workers, while mingle counts nodes.
AGENTS_OWN = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "RANK", "WORLD_SIZE"}

# Options of --rdzv-conf that are options of mingle, in seconds.
TIMES = {"join_timeout": "timeout", "last_call_timeout": "last_call"}

# Seconds. Where the job can go on without it, a suspected agent is gone after this time; c10d takes 15. Where it cannot, the
# agents sit an outage out for as long as `mingle run` does. MINGLE_GONE_AFTER replaces both.
GONE_AFTER = 10
# How long an agent that closes waits for those that start again: as long as torch lets workers stop.
LAST = 30

# What the installed torch can do.
RETURNS_INFO = hasattr(api, "RendezvousInfo")

# The agents use this part of the store only; the workers use the rest.
PREFIX = "mingle/agents"


def get_handler() -> Callable[[api.RendezvousParameters], api.RendezvousHandler]:
    """The entry point, which torch calls once. torch calls the result to create a handler."""
    return create_handler


def create_handler(params: api.RendezvousParameters) -> api.RendezvousHandler:
    """Creates a handler from torchrun's options. ValueError for options that mingle does not support."""
    # "none" is torchrun's default. With it, all jobs without an ID would meet.
    if not params.run_id or params.run_id == "none":
        raise ValueError("--rdzv-backend=mingle needs the job's name: --rdzv-id=ID, the same on every node")
    unknown = sorted(set(params.config) - {"timeout", *TIMES})
    if unknown:
        raise ValueError(
            f"--rdzv-conf: {', '.join(unknown)}: with --rdzv-backend=mingle there are join_timeout, last_call_timeout and "
            "timeout; options of mingle are variables, such as MINGLE_INTERFACE"
        )
    show()
    options: dict[str, Any] = {option: params.get_as_int(name) for name, option in TIMES.items()}
    options.update(job_id=params.run_id, world=params.max_nodes, seed=(params.endpoint or "").strip() or None)
    if params.min_nodes != params.max_nodes:
        # All agents may meet in one store in the end, so torch takes any range.
        options.update(world=f"{params.min_nodes}:{params.max_nodes}", grow=True, allow_split=True)
        options["gone_after"] = None if os.environ.get("MINGLE_GONE_AFTER") else GONE_AFTER
    # Seconds. torchrun always sets a timeout, 900 by default.
    timeout = timedelta(seconds=params.get_as_int("timeout", 900) or 900)
    return MingleRendezvous(params.run_id, options, timeout)


class _AgentStore(PrefixStore):
    """For a torch that takes no address of rank 0: its agent there tells the workers the name of the host, which the
    others may not resolve (torch/distributed/elastic/agent/server/api.py)."""

    def __init__(self, store: TCPStore, address: str) -> None:
        super().__init__(PREFIX, store)
        self._address = address

    def set(self, key: str, value: Any) -> None:
        super().set(key, self._address if key == "MASTER_ADDR" else value)


class MingleRendezvous(api.RendezvousHandler):
    """The rendezvous of one agent."""

    def __init__(self, run_id: str, options: dict[str, Any], timeout: timedelta) -> None:
        self._run_id = run_id
        self._options = options
        self._timeout = timeout
        self._world: Optional[mingle.RunningWorld] = None
        # torch keeps its own, too.
        self._store: Optional[TCPStore] = None
        self._has_met = False
        self._is_closed = False

    def get_backend(self) -> str:
        return "mingle"

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        # The workers cannot open another store: the agent of rank 0 listens on MASTER_PORT already.
        return True

    def next_rendezvous(self):
        world = self._world
        while True:
            self._check_closed()
            try:
                if world is None:
                    world = self._world = mingle.RunningWorld(**self._options, listener=TAKES_SOCKET)
                    # A signal is an exception of torch, and ends the process with code 1.
                    atexit.register(world.close)
                node = world.next(code=AGAIN)
            except mingle.Error as error:
                kind = ValueError if isinstance(error, mingle.UsageError) else RendezvousError
                raise kind(f"mingle: {error}") from error
            if node is None:
                self._end()
            # Workers inherit the environment of this process.
            _set(node, AGENTS_OWN)
            store = open_store(node, world.wait, self._timeout)
            if store is not None:
                break
        self._store, self._has_met = store, True
        if not RETURNS_INFO:
            return _AgentStore(store, node.master[0]), node.rank, node.world
        store = PrefixStore(PREFIX, store)
        return api.RendezvousInfo(store, node.rank, node.world, api.RendezvousStoreInfo(*node.master))

    def num_nodes_waiting(self) -> int:
        # The answer of torch's own backends is a count; the agent asks whether it is 0.
        return 0 if self._world is None or self._world.state == "running" else 1

    def is_closed(self) -> bool:
        return self._is_closed

    def set_closed(self) -> None:
        self._close(True)

    def shutdown(self) -> bool:
        self._close(sys.exc_info()[0] is not None)
        return True

    def _check_closed(self) -> None:
        """Raises RendezvousClosedError if this agent or another one has closed."""
        over = None if self._world is None else self._world.over
        if over is not None and over.how == "exited" and over.code != AGAIN:
            self._is_closed = True
            raise RendezvousClosedError(f"job {self._run_id} is closed: {over}")
        if self._is_closed:
            raise RendezvousClosedError(f"the rendezvous of job {self._run_id} is closed")

    def _end(self) -> None:
        """No further world forms: the other agents have ended well, or this one has left."""
        self._is_closed = True
        if self._has_met:
            raise RendezvousClosedError(f"job {self._run_id} is closed: the other agents have ended")
        # torch has no other way to end an agent that is not needed: launch_agent in torch/distributed/launcher/api.py fails
        # after RendezvousGracefulExitError.
        log.info("job %s has finished, and this node was not needed", self._run_id)
        raise SystemExit(0)

    def _close(self, has_failed: bool) -> None:
        self._is_closed = True
        world = self._world
        if world is None:
            return
        try:
            if not has_failed and world.finish():
                return
            over = world.over
            if over is not None and over.how == "exited" and over.code == AGAIN:
                # The others wait for this agent.
                world.next(timeout=LAST)
            world.fail(CLOSED)
        except mingle.Error as error:
            log.warning("%s", error)
        finally:
            world.close()


def show() -> None:
    """Shows on stderr what mingle says, unless the program has set up this logger. torch sets up that of all others."""
    if not log.handlers and log.level == logging.NOTSET:
        log.propagate = False
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("mingle: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
