"""The nodes of a job find each other, from a job ID and the number of nodes.

    import mingle

    with mingle.join("foo", 4) as node:
        print(node.rank, node.world, node.master)

Each node calls :func:`join`, which waits until all have come and each has proved that it reaches the others. It reads the
same ``MINGLE_*`` variables as the program ``mingle``, takes missing values from the same schedulers, and forms worlds
together with it. :class:`RunningWorld` stays with its world, so that lost nodes are noticed and replaced.
``import mingle.torch`` adds ``init_method="mingle://foo?world_size=4"`` to PyTorch, and ``import mingle.jax`` lets
``jax.distributed.initialize()`` find everything by itself.
"""

from __future__ import annotations

import os
import select
import sys
import weakref

from ._mingle import Joining, __version__

__all__ = [
    "Assignment",
    "ConflictError",
    "DeadlineError",
    "Error",
    "Member",
    "NetworkError",
    "Over",
    "RunningWorld",
    "SecretError",
    "UsageError",
    "join",
    "join_async",
]

# Milliseconds. A signal ends `poll`; one that comes just before is seen after this time.
LOOK = 50


class Error(Exception):
    """No world has formed. ``str()`` says why, and what can be done about it.

    ``code`` is the exit code of the program, ``kind`` the kind in the error of ``--format json``. ``facts`` has what is
    known by name: after a timeout ``world``, ``joined``, ``heard``, ``missing`` and ``absent``; ``port`` where one is taken.
    """

    def __init__(self, message="", code=1, kind="other", facts=None):
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.facts = facts or {}


class UsageError(Error, ValueError):
    """A wrong option or variable: code 2."""


class DeadlineError(Error, TimeoutError):
    """The timeout has passed: code 3."""


class ConflictError(Error):
    """The nodes want different things, such as one rank twice: code 4."""


class NetworkError(Error, ConnectionError):
    """The network is at fault: code 5."""


class SecretError(DeadlineError):
    """The timeout has passed, and datagrams were heard that the secret of the job does not open: code 6."""


ERRORS = {2: UsageError, 3: DeadlineError, 4: ConflictError, 5: NetworkError, 6: SecretError}


class Member(type(sys.implementation)):
    """A node of a world: ``rank``, ``id``, ``host``, ``address``, ``port``, ``slots`` and ``metadata``."""


class Assignment:
    """What a node has once its world has formed.

    The attributes are the fields of ``--format json``; ``master`` is the pair of address and port. ``env`` has the
    variables that the program prints, and ``unset`` the names of those that it removes: :meth:`export` does both.
    ``generation`` counts the worlds of the job before this one.

    On rank 0 ``listener`` is a descriptor that listens on the port of ``master``, so nobody else can take it. It is closed by
    :meth:`close`, at the end of a ``with``, and with the object; a library that takes descriptors gets it from
    :meth:`take_listener`.
    """

    def __init__(self, facts, listener):
        self.listener = listener
        self.__dict__.update(facts)
        self.master = facts["master"]["address"], facts["master"]["port"]
        self.roster = tuple(Member(**member) for member in facts["roster"])
        if listener is not None:
            _held.add(self)

    def take_listener(self):
        """Returns the listening descriptor, which is the caller's from now on; None if this node is not rank 0."""
        listener, self.listener = self.listener, None
        return listener

    def export(self, environ=os.environ):
        """Sets the variables in this process, whose children inherit them."""
        for name in self.unset:
            environ.pop(name, None)
        environ.update(self.env)

    def close(self):
        """Closes the listening descriptor, if it is still here."""
        listener = self.take_listener()
        if listener is not None:
            os.close(listener)

    _forget = close

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def __repr__(self):
        address, port = self.master
        return f"<mingle.Assignment rank {self.rank} of {self.world} in {self.job!r}, master {address} port {port}>"


def join(job_id=None, world=None, *, listener=True, on_event=None, **options):
    """Joins the world of ``world`` nodes called ``job_id``, waits until it has formed, and returns an :class:`Assignment`.

    ``options`` are those of the program, with ``_`` for ``-``: ``rank=2``, ``interface="10.1.0.0/16"``, ``seed=["gpu1"]``,
    ``timeout=90``. A flag is ``True``, and an option that can be repeated takes a list. What is not given comes from the
    variable ``MINGLE_...`` or from a scheduler, as for the program.

    With ``listener=False`` rank 0 closes its listening socket before the world forms, for a program that opens the port by
    itself: whoever connects before that is refused, and may try again.

    ``on_event`` is called with each event, a dictionary as ``--events`` writes it. Without it the logger ``mingle`` gets the
    lines that the program prints: warnings, and the rest as ``INFO``.

    Raises :class:`Error`. Ctrl-C and every other exception leave the world at once.
    """
    joining = _begin(job_id, world, listener, options)
    try:
        poll = select.poll()
        poll.register(joining.fileno(), select.POLLIN)
        while True:
            poll.poll(LOOK)
            assignment = _next(joining, on_event)
            if assignment is not None:
                return assignment
    except BaseException:
        joining.end()
        raise


async def join_async(job_id=None, world=None, *, listener=True, on_event=None, **options):
    """As :func:`join`, in an event loop of asyncio. To cancel the task leaves the world at once."""
    import asyncio

    loop = asyncio.get_running_loop()
    is_told = asyncio.Event()
    joining = _begin(job_id, world, listener, options)
    fd = joining.fileno()
    loop.add_reader(fd, is_told.set)
    try:
        while True:
            await is_told.wait()
            is_told.clear()
            loop.remove_reader(fd)
            assignment = _next(joining, on_event)
            if assignment is not None:
                return assignment
            loop.add_reader(fd, is_told.set)
    except BaseException:
        loop.remove_reader(fd)
        joining.end()
        raise


def _begin(job_id, world, listener, options, stays=False):
    joining = Joining(_arguments({"job_id": job_id, "world": world, **options}), listener, stays)
    _held.add(joining)
    return joining


def _arguments(options):
    """The arguments of the program for these options."""
    arguments = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                arguments.append(option)
            elif one is not None and one is not False:
                arguments.append(f"{option}={one}")
    return arguments


def _next(joining, on_event):
    """Passes on what has happened, and returns the assignment once there is one."""
    for kind, what, fd in joining.take():
        if kind == "formed":
            assignment = Assignment(what, fd)
            joining.finish()
            return assignment
        if kind == "failed":
            joining.finish()
            raise _error(what)
        _pass_on(kind, what, on_event)
    return None


def _pass_on(kind, what, on_event):
    """Passes on an event, or a line of the program."""
    if kind == "event":
        if on_event is not None:
            on_event(what)
    elif on_event is None:
        _log(what)


def _error(what):
    """The exception for a failure."""
    return ERRORS.get(what["code"], Error)(what["message"], what["code"], what["kind"], what["facts"])


def _local(assignment):
    """The index of this process among those of its host, in the order of ranks, and their number."""
    own = assignment.roster[assignment.rank]
    here = [m.rank for m in assignment.roster if (m.host, m.address) == (own.host, own.address)]
    return here.index(own.rank), len(here)


def _log(line):
    """Logs a line of the program."""
    warning = line.startswith("warning: ")
    # Nobody reads what is no warning in a process that has not set up the logging.
    if warning or "logging" in sys.modules:
        import logging

        logging.getLogger("mingle").log(logging.WARNING if warning else logging.INFO, line)


# What has a descriptor in this process.
_held = weakref.WeakSet()


def _after_fork():
    """In a child: closes the descriptors of the parent's objects."""
    for held in list(_held):
        held._forget()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)

from ._running import Over, RunningWorld  # noqa: E402 - it needs the names above

RunningWorld.__module__ = Over.__module__ = __name__
