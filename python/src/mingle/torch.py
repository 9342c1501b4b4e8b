"""Lets processes of PyTorch find each other without a launcher:

    torch.distributed.init_process_group(init_method="mingle://foo?world_size=4")

PyTorch before 2.5 loads no extensions and says "No rendezvous handler": write ``import mingle.torch`` first.

``foo`` is the job ID, percent-encoded. ``world_size`` counts processes; give it in the URL or as the argument of
``init_process_group``. The URL may have further options of mingle, such as ``&interface=eth0&ipv6=true``. Each process joins
by itself, takes its rank, and gets ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE`` from the order of the ranks on its host.

Rank 0 hands its listening socket to ``TCPStore``, so the port is never free. PyTorch before 2.3 cannot take a socket: it
opens the port itself, and another program could take the port in the milliseconds before.

With :class:`Group` a training goes on in the surviving processes when a node dies.
"""

from __future__ import annotations

import contextlib
import os
import time
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

from torch.distributed import TCPStore
from torch.distributed.rendezvous import register_rendezvous_handler

from . import LOOK, UsageError, _export, join
from ._mingle import options as options_of

__all__ = ["Group", "rendezvous"]

# Seconds: the longest timeout of mingle.
LONGEST = 365 * 24 * 3600
# The first and the longest patience with the store of rank 0, which may be dead: what waits for the store does not see that
# before. The longest is more than an answer about the name of the host, which torch asks for, may take.
PATIENCE = timedelta(seconds=2), timedelta(seconds=60)
# What a store raises, depending on the version of torch.
FAILED = (RuntimeError, OSError)

# Whether TCPStore takes a socket, and whether it can be told which server to use. It is not a function of Python.
TAKES_SOCKET = "master_listen_fd" in (TCPStore.__init__.__doc__ or "")
TAKES_LIBUV = "use_libuv" in (TCPStore.__init__.__doc__ or "")


def rendezvous(url, timeout=timedelta(minutes=10), **_):
    """Joins the job in ``url``, and yields the store, the rank and the number of processes. ``timeout`` is a timedelta."""
    options = _options(url, timeout)
    use_libuv = options.pop("use_libuv", None)
    try:
        assignment = join(listener=TAKES_SOCKET, **options)
    except TypeError as error:
        # All in a URL is text.
        raise UsageError(f"{url}: {error}", 2, "usage") from None
    _export(assignment)
    # Nothing but the timeout ends the wait.
    store = open_store(assignment, time.sleep, timeout, use_libuv)
    yield store, assignment.rank, assignment.world
    raise RuntimeError("mingle://: a world is formed once; call init_process_group again for another one")


def open_store(assignment, is_over, timeout, use_libuv=None):
    """The store of a world, once all nodes have reached it; None if the world is over before.

    ``is_over`` waits for the end of the world, at most this many seconds, and returns whether the world is over.
    """
    end = time.monotonic() + timeout.total_seconds()
    patience, longest = (timeout, timeout) if assignment.rank == 0 else PATIENCE
    while True:
        try:
            # A new server each time: torch would find the keys of an earlier one on the same port.
            store = _store(assignment, patience, use_libuv, wait_for_workers=False)
            break
        except FAILED:
            # Rank 0 is gone, or it has not come so far.
            if assignment.rank == 0 or time.monotonic() >= end:
                raise
        if is_over(LOOK / 1000):
            return None
        patience = min(2 * patience, longest)
    store.set_timeout(timeout)
    # Rank 0 answers at most 5,000 such questions a second.
    pause, step = max(0.005, assignment.world / 5000), 1
    while True:
        try:
            here = store.add("mingle/here", step)
        except FAILED:
            # Rank 0 is gone, which the world knows in a moment.
            here, pause = 0, 0.5
        if here >= assignment.world:
            return store
        if is_over(pause):
            return None
        if time.monotonic() >= end:
            raise RuntimeError(f"{here} of {assignment.world} nodes have reached the store of rank 0")
        step = 0


def _store(assignment, timeout, use_libuv, **more):
    """The store of a world. Rank 0 gives it the socket that has listened since the world formed, and the store closes it."""
    if TAKES_LIBUV:
        more["use_libuv"] = (use_libuv or os.environ.get("USE_LIBUV", "1")) == "1"
    if assignment.listener is not None:
        more["master_listen_fd"] = assignment.take_listener()
    return TCPStore(*assignment.master, assignment.world, assignment.rank == 0, timeout, **more)


def _options(url, timeout):
    """The options of :func:`mingle.join` in this URL."""
    _refuse_torchrun("mingle://", "leave init_method out, and let")
    parts = urlsplit(url)
    if parts.path not in ("", "/"):
        raise UsageError(f"{url}: the job ID ends at {parts.path!r}; write a / in it as %2F", 2, "usage")
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = {"slots": 1}
    # How many values each option takes: 0, 1, or 2 for any number.
    values = options_of(True)
    for name, value in given:
        value = value == "true" or value
        # Of an option that is given again, only some take each.
        options[name] = [*options.get(name, []), value] if values.get(name) == 2 else value
    # PyTorch writes -1 for what is not given. It counts processes, and the variables of mingle and schedulers count nodes.
    world = options.pop("world_size", "-1")
    if world == "-1":
        raise UsageError(f"{url}: how many processes are there? Write {url}?world_size=4, or give world_size=4", 2, "usage")
    if not os.environ.get("MINGLE_TIMEOUT"):
        options.setdefault("timeout", min(timeout.total_seconds(), LONGEST))
    # The host of urlsplit() would be in small letters.
    return {"job_id": unquote(parts.netloc) or None, "world": world, **options}


def _refuse_torchrun(what, instead="let"):
    if "TORCHELASTIC_RUN_ID" in os.environ:
        message = f"{what} in a worker of torchrun, which has formed a world and given this process a rank: {instead}"
        raise UsageError(f"{message} the agents meet by torchrun --rdzv-backend=mingle", 2, "usage")


# mingle_torch has done it, where torch loads extensions.
with contextlib.suppress(RuntimeError):
    register_rendezvous_handler("mingle", rendezvous)


def __getattr__(name):
    # It needs more of torch than a URL does.
    if name != "Group":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._group import Group

    Group.__module__ = __name__
    globals()[name] = Group
    return Group
