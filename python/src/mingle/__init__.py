"""The nodes of a job find each other, from a job ID and the number of nodes.

    import mingle

    with mingle.join("foo", 4) as node:
        print(node.rank, node.world, node.master)

Each node calls :func:`join`, which waits until all nodes have come and each node has proved that it reaches the others.
:func:`join` reads the same ``MINGLE_*`` variables as the program ``mingle``, takes missing values from the same schedulers,
and forms worlds together with the program. :class:`RunningWorld` stays with its world, so that it notices and replaces lost
nodes. ``import mingle.torch`` adds ``init_method="mingle://foo?world_size=4"`` to PyTorch, and ``import mingle.jax`` lets
``jax.distributed.initialize()`` work without arguments.
"""

from __future__ import annotations

import os
import sys
import weakref
from types import SimpleNamespace

# As in `typing`, whose import would take milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, MutableMapping

    from typing_extensions import Self, Unpack

    from ._options import Options

from ._mingle import __version__, options

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
]

# Milliseconds. A signal ends `poll`; one that comes just before is seen after this time.
LOOK = 50


class Error(Exception):
    """No world has formed. ``str()`` says why, and what you can do about it.

    ``code`` is the exit code of the program, ``kind`` the kind in the error of ``--format json``. ``facts`` has the known
    facts by name: ``world``, ``joined``, ``heard``, ``missing`` and ``absent`` after a timeout; ``port`` if it is taken.
    """

    def __init__(self, message: str = "", code: int = 1, kind: str = "other", facts: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.kind = kind
        self.facts = facts or {}


class UsageError(Error, ValueError):
    """A wrong option or variable: code 2."""


class DeadlineError(Error, TimeoutError):
    """The timeout has passed: code 3."""


class ConflictError(Error):
    """The nodes ask for contradicting things, such as the same rank: code 4."""


class NetworkError(Error, ConnectionError):
    """The network is at fault: code 5."""


class SecretError(DeadlineError):
    """The timeout has passed, and the job's secret did not open some datagrams that arrived: code 6."""


ERRORS = {2: UsageError, 3: DeadlineError, 4: ConflictError, 5: NetworkError, 6: SecretError}


class Member(SimpleNamespace):
    """A node of a world."""

    rank: int
    id: str
    host: str
    address: str
    port: int
    slots: int
    metadata: dict[str, str]


class Assignment:
    """What a node has once its world has formed.

    ``job``, ``rank``, ``world``: the job ID, this node's rank and the number of nodes
    ``master``: the address and the port of rank 0, a pair
    ``roster``: all nodes in the order of ranks, a tuple of :class:`Member`
    ``generation``: how many worlds of the job formed before this world
    ``local``, ``interface``: this node's address, and the name of the interface that has the address, or None
    ``slots``: how many workers run on this node, on nodes of lower ranks and on all nodes: ``own``, ``before``, ``total``
    ``digest``: a hash of everything that the nodes agreed on, the same on every node
    ``env``, ``unset``: the variables that the program prints, and the names that it removes; see :meth:`export`
    ``fabric``, ``differences``: what all ranks use for RDMA, and texts about ranks that differ
    ``timings``: ``formed_ms``, the milliseconds from the start until the world had formed
    ``listener``: on rank 0 a descriptor that listens on the port of ``master``, so no other program can take the port;
    None on other ranks

    :meth:`close`, the end of a ``with`` and the deletion of the object close the listener. A library that takes descriptors
    gets the listener from :meth:`take_listener`. A copy of the object, also in another process, has no listener.
    """

    job: str
    rank: int
    world: int
    master: tuple[str, int]
    roster: tuple[Member, ...]
    generation: int
    local: str
    interface: str | None
    slots: dict[str, int]
    digest: str
    env: dict[str, str]
    unset: list[str]
    fabric: dict[str, Any]
    differences: list[str]
    timings: dict[str, int | None]
    listener: int | None

    def __init__(self, facts, listener):
        self.listener = listener
        self.__dict__.update(facts)
        self.master = facts["master"]["address"], facts["master"]["port"]
        self.roster = tuple(Member(**member) for member in facts["roster"])
        if listener is not None:
            _held.add(self)

    def __getstate__(self):
        return {**self.__dict__, "listener": None}

    def to_dict(self) -> dict[str, Any]:
        """The fields of ``--format json``, and ``generation``, as dictionaries, lists, strings and numbers."""
        address, port = self.master
        fields = {**self.__dict__, "master": {"address": address, "port": port}}
        fields["roster"] = [dict(vars(member)) for member in self.roster]
        del fields["listener"]
        return fields

    def take_listener(self) -> int | None:
        """Returns the listening descriptor, which the caller must close; None if this node is not rank 0."""
        listener, self.listener = self.listener, None
        return listener

    def export(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Sets the variables of the world in ``environ``: by default in this process, whose children inherit them."""
        for name in self.unset:
            environ.pop(name, None)
        environ.update(self.env)

    def close(self) -> None:
        """Closes the listening descriptor, unless :meth:`take_listener` has returned it."""
        listener = self.take_listener()
        if listener is not None:
            os.close(listener)

    _forget = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self):
        self.close()

    def __repr__(self):
        address, port = self.master
        return f"<mingle.Assignment rank {self.rank} of {self.world} in {self.job!r}, master {address} port {port}>"


def join(
    job_id: str | None = None,
    world: int | str | None = None,
    *,
    listener: bool = True,
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
    **options: Unpack[Options],
) -> Assignment:
    """Joins the job ``job_id`` of ``world`` nodes, waits until its world has formed, and returns an :class:`Assignment`.

    ``options`` are the options of the program, with ``_`` for ``-``: ``rank=2``, ``interface="10.1.0.0/16"``,
    ``seed=["gpu1"]``, ``timeout=90`` (seconds) or a ``timedelta``. A flag is ``True``, and an option that you can repeat
    takes a list. Options that you leave out come from the variable ``MINGLE_...`` or from a scheduler, as for the program.

    With ``listener=False`` rank 0 closes its listening socket before the world forms, for a program that opens the port
    itself. Until the program has opened the port, connections are refused, and clients must try again.

    ``join`` calls ``on_event`` with each event, a dictionary as ``--events`` writes it. Without ``on_event`` the logger
    ``mingle`` gets the lines that the program prints: warnings as ``WARNING``, other lines as ``INFO``.

    Raises :class:`Error` if no world forms, its subclass :class:`UsageError`, also a ``ValueError``, for a wrong value, and
    ``TypeError`` for an unknown option or a value of a wrong type. Ctrl-C and every other exception leave the world at once.

    In asyncio write ``await asyncio.to_thread(mingle.join, "foo", 4)``. A cancelled task does not end the wait: give a timeout.
    """
    return _Once(job_id, world, listener=listener, on_event=on_event, **options).next()


def _arguments(given, function, known):
    """The arguments of the program for the keywords that this function was given."""
    arguments = []
    for name, value in given.items():
        if name not in known:
            raise TypeError(_unexpected(name, function, known))
        option = "--" + name.replace("_", "-")
        if known[name] == 0:
            if not isinstance(value, (bool, type(None))):
                raise TypeError(f"{name}= must be True or False, not {value!r}")
            arguments += [option] if value else []
        elif value is not None:
            values = value if known[name] == 2 and isinstance(value, (list, tuple)) else [value]
            arguments += [f"{option}={_text(name, one)}" for one in values]
    return arguments


def _text(name, value):
    """A value as the program takes it."""
    if isinstance(value, str):
        return value
    if name == "job_id":
        raise TypeError(f"job_id= must be a str, not {type(value).__name__}: {value!r}")
    if hasattr(value, "total_seconds"):
        return str(value.total_seconds())
    if isinstance(value, float) or hasattr(value, "__index__") and not isinstance(value, bool):
        return str(value)
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    raise TypeError(f"{name}= takes no {type(value).__name__}: {value!r}")


def _unexpected(name, function, known):
    import difflib

    text = f"{function}() got an unexpected keyword argument {name!r}"
    near = difflib.get_close_matches(name, [*known, "listener", "on_event"], 1)
    return f"{text}. Did you mean {near[0]!r}?" if near else text


def _in_python(text):
    """What the program says, with the names that its options have here. Those of other programs keep theirs."""
    import re

    text = text.replace("--max-restarts or RunningWorld", "RunningWorld")
    text = text.replace("mingle --help", "help(mingle.join)").replace("with -v", "with verbose=True")

    def here(found):
        name = found[1].replace("-", "_")
        return name + "=" if name in options(True) else found[0]

    # A value follows where it is one for sure.
    value = r"(?: (?=[\d:\"]|N\b|ID\b|foo\b|off\b|require\b|\S+: ))?"
    return re.sub(rf"--([a-z][a-z0-9-]*){value}=?", here, text)


def _error(what):
    """The exception for a failure."""
    message = _in_python(what["message"])
    return ERRORS.get(what["code"], Error)(message, what["code"], what["kind"], what["facts"])


def _set(assignment, own):
    """Sets the variables of this process but for these, which it sets itself, and torchrun's."""
    given = assignment.env.items()
    assignment.env = {name: value for name, value in given if name not in own and not name.startswith("PET_")}
    assignment.export()


def _export(assignment):
    """Sets the variables of this process where each process is a node: those that count processes, and all others."""
    _set(assignment, {"NODE_RANK"})
    own = assignment.roster[assignment.rank]
    here = [member.rank for member in assignment.roster if (member.host, member.address) == (own.host, own.address)]
    os.environ.update(LOCAL_RANK=str(here.index(own.rank)), LOCAL_WORLD_SIZE=str(len(here)))


def _log(line):
    """Logs a line of the program."""
    warning = line.startswith("warning: ")
    # Nobody reads what is no warning in a process that has not set up the logging.
    if warning or "logging" in sys.modules:
        import logging

        logger, level = logging.getLogger("mingle"), logging.WARNING if warning else logging.INFO
        line = _in_python(line)
        if logger.hasHandlers():
            logger.log(level, line)
        elif warning and logger.isEnabledFor(level):
            # As logging does without a handler, with the name of who says it.
            print(f"mingle: {line}", file=sys.stderr)


# What has a descriptor in this process.
_held = weakref.WeakSet()


def _after_fork():
    """In a child: closes the descriptors of the parent's objects."""
    for held in list(_held):
        held._forget()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)

from ._running import Over, RunningWorld, _Once  # noqa: E402 - it needs the names above

RunningWorld.__module__ = Over.__module__ = __name__
