"""Worlds that stay: :class:`RunningWorld`, which the module ``mingle`` exports."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import sys
import time
from types import SimpleNamespace

# As in `typing`, whose import would take milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Literal, Mapping

    from typing_extensions import Self, Unpack

    from ._options import StayOptions

from . import LOOK, Assignment, Error, UsageError, _arguments, _error, _held, _log
from ._mingle import Joining, options as options_of

# The states in which nothing more happens.
ENDED = ("finished", "left", "failed")


class Over(SimpleNamespace):
    """How a world has ended.

    ``how`` is ``"exited"`` (with the exit code ``code``), ``"killed"`` (by the signal ``code``), ``"gone"`` (a node is dead),
    ``"left"`` (a node was asked to leave), ``"grows"`` (the world takes in waiting nodes) or ``"unknown"``. ``rank`` and
    ``host`` name the node that has ended the world, or are None if that node is not known. ``str()`` is a sentence.
    """

    how: Literal["exited", "killed", "gone", "left", "grows", "unknown"]
    rank: int | None
    host: str | None
    code: int | None
    text: str

    def __str__(self):
        return self.text


class RunningWorld:
    """A node's part in the worlds of a job, generation after generation.

        with mingle.RunningWorld("foo", "2:4", grow=True) as world:
            for node in world:
                if train(node, stop=lambda: world.state != "running"):
                    world.finish()

    The arguments are those of :func:`mingle.join`. ``options`` may also have the options of ``mingle run`` that decide when a
    world is over: ``gone_after``, ``grow``, ``allow_split`` and ``stop_timeout``. The node begins to look for the other nodes
    at once, and stays with each world that forms. A thread that needs no Python hears and answers the other nodes, so they
    do not take a stalled program for dead. They notice a killed program within a second.

    A world is over for all its nodes when a node says so, leaves, or dies. Then each node calls :meth:`next`, and the world
    of the next generation forms, in which new nodes replace the lost nodes.

    If an exception leaves a ``with`` block or a method, or ends the process, this node has failed: the world is over for all
    nodes with exit code 1, or, where SystemExit leaves the block, with its code. After Ctrl-C or ``sys.exit(0)``, and
    where the process ends in another way, this node leaves as by :meth:`close`.

    Attributes are up to date whenever you read them. Use the object in a single thread at a time. In asyncio, run
    :meth:`next` by ``asyncio.to_thread``, and read :attr:`state` where ``loop.add_reader(world.fileno(), ...)`` calls you.
    While :attr:`state` is "forming", nothing in this process may change ``os.environ``: mingle's thread reads the environment.
    """

    def __init__(
        self,
        job_id: str | None = None,
        world: int | str | None = None,
        *,
        listener: bool = True,
        on_event: Callable[[Mapping[str, Any]], object] | None = None,
        **options: Unpack[StayOptions],
    ) -> None:
        self._on_event = on_event
        self._assignment = None
        self._error = None
        # What has happened, and was not passed on, since `on_event` has raised.
        self._pending = []
        self._clear("forming")
        given = {"job_id": job_id, "world": world, **options}
        self._joining = Joining(_arguments(given, self._function, options_of(self._stays)), listener, self._stays)
        _held.update((self, self._joining))

    _function, _stays = "RunningWorld", True

    @property
    def state(self) -> Literal["forming", "running", "over", "finished", "left", "failed"]:
        """``"forming"``: no world has formed yet. ``"running"``: a world has formed. ``"over"``: stop what the program does
        in this world, and call :meth:`next`. ``"finished"``: all nodes have finished. ``"left"``: this node has left.
        ``"failed"``: no world has formed, and :meth:`next` raises the reason.
        """
        self._take()
        return self._state

    @property
    def assignment(self) -> Assignment | None:
        """The :class:`Assignment` in the world that runs or is over; None until a world has formed."""
        self._take()
        return self._assignment

    @property
    def over(self) -> Over | None:
        """How the world has ended: an :class:`Over`; None while the world runs. May change once the first cause is known."""
        self._take()
        return self._over

    @property
    def waiting(self) -> int:
        """How many nodes wait for a seat, by the leader's last message."""
        self._take()
        return self._waiting

    def fileno(self) -> int:
        """A descriptor for ``select``, which is readable when something has happened; -1 after the end."""
        return self._joining.fileno()

    def next(self, *, code: int = 1, timeout: float | None = None) -> Assignment | None:
        """Waits for the world of the next generation, and returns its :class:`Assignment`. Returns None if the job has
        finished or this node has left. Also returns None after ``timeout`` seconds: then :attr:`state` is "forming", and
        another call goes on waiting.

        The first call waits for the first world, and skips worlds that are over before it returns. A later call ends a world
        that still runs, for all its nodes, as if this program had failed with the exit code ``code`` (1 to 255). It closes
        the listening socket of the last world, unless you have taken the socket. If the program still has a socket on the
        port of the last world, the next world takes another port.

        Raises :class:`Error` if no world forms. Ctrl-C and every other exception, also of ``on_event``, end this node's part
        at once.
        """
        code = _code(code)
        self._hear_all()
        # The first world was asked for already.
        if self._state == "over" or self._state == "running" and self._is_taken:
            self._clear("forming")
            self._joining.say("next", code)
        self._wait(lambda: self._state != "forming", timeout)
        if self._error is not None:
            raise self._error
        self._is_taken = self._assignment is not None
        return self._assignment

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the world has ended, but at most ``timeout`` seconds. Returns whether the world has ended."""
        return self._wait(lambda: self._state != "running", timeout)

    def finish(self, timeout: float | None = None) -> bool:
        """Says that the program has succeeded on this node, and waits until it has succeeded on all nodes, but at most
        ``timeout`` seconds. Returns whether it has. If the world is over before, all nodes start again: call :meth:`next`.
        """
        self._hear_all()
        if self._state == "running":
            self._joining.say("finish", 0)
        return self._wait(lambda: self._state != "running", timeout) and self._state == "finished"

    def fail(self, code: int = 1) -> None:
        """Ends the world for all its nodes with this exit code (1 to 255), and this node's part in the job. If this node is
        the leader, nodes that wait for a seat end too. Waits until all nodes know, but at most 5 seconds.
        """
        self._hear_all()
        if self._state not in ENDED:
            self._leave("fail", _code(code))

    def close(self) -> None:
        """Leaves the job. The world is over for its other nodes, and they do not take this node for dead. Waits until the
        other nodes know, but at most 3 seconds. Does nothing after the end.
        """
        self._leave_with(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, trace: object) -> None:
        self._leave_with(_code_of(error))

    def __iter__(self) -> Iterator[Assignment]:
        """Iterates over the assignments of all generations, as :meth:`next` returns them."""
        return iter(self.next, None)

    def __repr__(self):
        return f"<mingle.RunningWorld {self._state} {self._assignment!r}>"

    def _clear(self, state):
        self._state, self._over = state, None
        self._waiting = 0
        # Whether `next` has returned the assignment of this world.
        self._is_taken = False
        if self._assignment is not None:
            self._assignment.close()
            self._assignment = None

    def _forget(self):
        """In a child that ``fork`` has made: this object is the parent's."""
        self._clear("left")

    def _leave_with(self, code):
        self._hear_all()
        if self._state not in ENDED:
            self._leave("leave", code)

    def _leave(self, word, code):
        """Says the last word to the thread, and waits until it has told the others."""
        self._joining.say(word, code)
        self._clear("left")
        self._joining.finish()
        while self._pending:
            if (fd := self._pending.pop()[2]) is not None:
                os.close(fd)

    def _hear_all(self):
        """Passes on what has happened. What `on_event` raises ends this node's part, unlike where an attribute is read."""
        self._wait(lambda: True, None)

    def _wait(self, done, timeout):
        end = None if timeout is None else time.monotonic() + timeout
        poll = select.poll()
        try:
            self._take()
            poll.register(max(self._joining.fileno(), 0), select.POLLIN)
            while not done():
                left = LOOK if end is None else min(LOOK, 1000 * (end - time.monotonic()))
                if left <= 0:
                    return False
                flags = poll.poll(left)
                self._take(any(flag & select.POLLHUP for _, flag in flags))
        except BaseException as error:
            if self._state not in ENDED:
                self._leave("leave", _code_of(error))
            raise
        return True

    def _take(self, is_last=False):
        """Passes on what has happened. ``is_last``: the thread has ended."""
        if self._state in ENDED:
            return
        import json

        self._pending += self._joining.take()
        while self._pending:
            kind, text, fd = self._pending.pop(0)
            what = json.loads(text)
            if kind == "formed":
                self._assignment = Assignment(what, fd)
                if self._stays:
                    self._state = "running"
                else:
                    self._state = "left"
                    self._joining.finish()
            elif kind == "failed":
                self._fail(what)
            elif kind == "event":
                self._hear(what)
                if self._on_event is not None:
                    self._on_event(what)
            elif self._on_event is None:
                _log(what)
        if is_last and self._state not in ENDED:
            self._fail({"message": "the thread that stays with the world has ended", "code": 1, "kind": "other", "facts": {}})

    def _fail(self, what):
        self._clear("failed")
        if what["code"] == 3 and self._cause:
            # The nodes have met before, so the network is not what keeps them apart.
            what["message"] = f"{self._cause}; since then {what['message'].split('; ')[0]}"
        if what["kind"] == "job_finished" and self._stays:
            self._state = "finished"
        else:
            self._error = _error(what)
        self._joining.finish()

    def _hear(self, event):
        kind = event["event"]
        if kind in ("over", "cause"):
            self._cause = event["message"]
        if kind == "finished":
            self._clear("finished")
            self._joining.finish()
        elif self._state == "forming":
            # It is of the last world, or of a world that was over before this program could hear of it.
            pass
        elif kind in ("over", "cause"):
            host = event["node"] and event["node"]["host"]
            self._over = Over(how=event["end"], rank=event["rank"], host=host, code=event["code"], text=event["message"])
            self._state = "over"
        elif kind == "waiting":
            self._waiting = event["nodes"]

    # Why the last world that is over has ended.
    _cause = ""


class _Once(RunningWorld):
    """A node that forms one world, and does not stay with it."""

    _function, _stays = "join", False


def _code(code):
    if not isinstance(code, int) or not 1 <= code <= 255:
        raise UsageError(f"{code!r} is no exit code of a program that has failed; give 1 to 255", 2, "usage")
    return code


def _code_of(error):
    """The exit code of a process that ends with this exception; 0 where somebody has asked for the end."""
    if isinstance(error, SystemExit) and error.code is not None:
        return error.code & 255 if isinstance(error.code, int) else 1
    return 1 if isinstance(error, Exception) else 0


def _end_all():
    """Tells the others the exception that ends the process, or else that this node leaves."""
    # A prompt has shown its exceptions, and gone on.
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
    for held in list(_held):
        if isinstance(held, RunningWorld) and held._stays:
            # The next one leaves as well, whatever on_event of this one does.
            with contextlib.suppress(Exception):
                held._leave_with(_code_of(error))


atexit.register(_end_all)
