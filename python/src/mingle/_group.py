"""A training that goes on in the surviving processes: :class:`Group`, which ``mingle.torch`` exports."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import LOOK, RunningWorld, UsageError, _export
from .torch import TAKES_SOCKET, _refuse_torchrun, open_store

# Seconds. A collective fails before mingle has found the dead node: a killed one takes a second at most.
HEARS = 5
# How long the nodes may take to the boundary at which newcomers come in: less than `stop_timeout`, after which the next
# world forms without those that are not there.
BOUNDARY = 20
# How long each node may take to the store, and an answer of the store.
STORE = timedelta(minutes=5)
# How often in a row torch may fail to connect while no node is lost.
TRIES = 3
# How long a collective of Gloo may take to fail after its connections have been cut.
FAILS = timedelta(seconds=1)

BACKENDS = ("gloo", "nccl", "cpu:gloo,cuda:nccl")


class Group:
    """torch's default process group over the living nodes. A dead node costs the survivors the running step, but no process.

        with mingle.torch.Group("foo", "3:4") as group:
            while group.goes_on(group.steps < 1000):
                with group.step():
                    if group.is_new:
                        state = [(model.state_dict(), optimizer.state_dict())]
                        torch.distributed.broadcast_object_list(state, group.source)
                        model.load_state_dict(state[0][0])
                        optimizer.load_state_dict(state[0][1])
                    else:
                        ...  # step `group.steps` of the training, for rank `group.rank` of `group.world`

    Each process is a node. The arguments are those of :class:`mingle.RunningWorld`; a range of sizes turns ``grow`` on.
    ``backend`` is "gloo", "nccl" or "cpu:gloo,cuda:nccl".

    When a node dies, the collectives of the survivors fail within milliseconds after mingle has found the node dead, or
    within two seconds where Gloo still waits for a send and you wait for the collective in Python. The block of :meth:`step`
    ends, and :meth:`goes_on` forms the next world. Some survivors may have finished the step and some not: an agreement at
    the end of each step would not help, since its own last message can be lost. Instead, the first block of each world
    transfers the state: :attr:`is_new` is true on all nodes, every node loads the state of rank :attr:`source`, which has
    finished the most steps, and the block does not count as a step. So all nodes have equal states and equal :attr:`steps`,
    and the job keeps every step that a survivor has finished.

    You must keep three rules. A block changes the state after its last collective, so that a failed block has changed
    nothing; on GPUs call :meth:`check` between the last collective and the change. A node receives the whole state before
    it loads any part of the state, so that the sender may die. When :attr:`is_new` is true, create every object that keeps
    a process group, such as DistributedDataParallel, anew.

    Newcomers enter between two steps, and no step is lost. Use the object in the thread that has created it. Until the block
    of ``with`` begins and while :meth:`goes_on` runs, nothing else may change ``os.environ``: mingle's thread reads it.

    ``rank``, ``world``: the rank of this node, and the number of nodes
    ``steps``: how many steps count, the same on all nodes
    ``is_new``: whether this block transfers the state
    ``source``: the rank whose state every node loads
    ``generation``: how many worlds of the job formed before this world
    ``assignment``: the :class:`mingle.Assignment` of this world
    """

    def __init__(self, job_id=None, world=None, *, backend=None, on_event=None, **options):
        self._backend = _backend(backend)
        _refuse_torchrun("mingle.torch.Group")
        if dist.is_initialized():
            raise _usage("torch.distributed is initialized already; leave init_process_group out, Group calls it")
        self.assignment = self.rank = self.world = self.generation = self.source = None
        self.steps, self.is_new = 0, False
        # The steps that this node's own state has.
        self._own = 0
        self._is_done = self._may_step = self._is_inside = False
        # And what `sys.excepthook` was before torch has set its own, and that.
        self._watch, self._hooks = None, (None, None)
        self._owner = os.getpid(), threading.get_ident()
        # A world of one size has no room to grow.
        is_range = ":" in str(world or os.environ.get("MINGLE_WORLD"))
        options = {"slots": 1, "grow": is_range or None, **options}
        self._world = RunningWorld(job_id, world, listener=TAKES_SOCKET, on_event=on_event, **options)

    def goes_on(self, wants=True):
        """Call this before each block of :meth:`step`; run the block if it returns True. Only this call changes the world.

        ``wants``: whether this node has steps left. Nodes with equal states must give the same answer. With False the call
        waits until all nodes have finished. If the world ends before that, the call returns True again: the other nodes need
        this node's state.

        The call also returns False to a spare that the job did not need. The ``rank`` of such a spare is None.
        """
        self._check_use()
        while not self._is_done:
            if wants or self.is_new:
                self._may_step = self._watch.begins()
                if self._may_step:
                    return True
            else:
                self._watch.stop()
                if self._world.finish():
                    self._is_done = True
                    break
            self._meet()
        return False

    @contextlib.contextmanager
    def step(self):
        """A block that counts as a step if it ends without an exception.

        If the block raises a RuntimeError, as a failed collective does, and mingle finds within 5 seconds that the world is
        over, the program goes on after the block. You get every other exception.
        """
        self._check_use()
        if not self._may_step:
            raise RuntimeError("call group.goes_on() before each block of group.step()")
        self._may_step, self._is_inside = False, True
        try:
            yield
        except RuntimeError as error:
            if not self._watch.is_over.wait(HEARS):
                raise
            logging.getLogger("mingle").info("the world is over, so this step does not count: %r", error)
            self._watch.is_cut.set()
        else:
            if self.is_new:
                self.is_new = False
            else:
                self.steps += 1
            self._own = self.steps
        finally:
            self._is_inside = False

    def check(self):
        """Waits for the GPU, and ends the block of :meth:`step` if the collectives of the block were aborted.

        An aborted collective of NCCL leaves wrong numbers and raises nothing, so call this after the last collective of a
        block, before the state changes. Collectives of Gloo raise by themselves.
        """
        self._check_use(is_inside=True)
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        if self._watch.is_cut.is_set():
            raise _Over

    def __enter__(self):
        try:
            self._meet()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        if self._owner[0] != os.getpid():
            # A child that `fork` has made has the connections of its parent.
            return
        watch = self._watch
        if watch is not None:
            watch.stop()
        try:
            # The others learn it from mingle first, and not from a connection that ends.
            self._world.__exit__(kind, error, trace)
        finally:
            if watch is not None and not self._is_done:
                watch.cut()
            with contextlib.suppress(Exception):
                self._leave()
            self._is_done = True
        if kind is None and watch is not None and watch.error is not None:
            raise watch.error

    def __repr__(self):
        return f"<mingle.torch.Group rank {self.rank} of {self.world}, {self.steps} steps, {self._world!r}>"

    def _check_use(self, is_inside=False):
        if self._owner != (os.getpid(), threading.get_ident()):
            raise RuntimeError("a mingle.torch.Group is for the thread that has made it")
        if self._watch is None and not self._is_done:
            raise RuntimeError("no world has formed; write `with mingle.torch.Group(...) as group:`")
        if self._is_inside != is_inside:
            raise RuntimeError(f"this call must stand {'in' if is_inside else 'outside of'} a block of group.step()")

    def _meet(self):
        """Forms the next world, again where it is over before all are connected."""
        tries = 0
        while True:
            self._leave()
            assignment = self._world.next()
            if assignment is None:
                self._is_done = True
                return
            self._watch = _Watch(self._world, self._backend)
            self._watch.start()
            try:
                return self._connect(assignment)
            except RuntimeError:
                tries += not self._watch.is_over.wait(HEARS)
                if tries == TRIES:
                    raise

    def _connect(self, assignment):
        """Makes the group of a world that has formed, and agrees on the steps that count."""
        rank, world = assignment.rank, assignment.world
        _export(assignment)
        store = open_store(assignment, self._watch.is_over.wait, STORE)
        if store is None:
            raise _Over
        store.set(f"mingle/steps/{rank}", str(self._own))
        store.add("mingle/told", 1)
        if rank == 0:
            self._watch.wait_for(store, "mingle/told", world)
            steps = [int(store.get(f"mingle/steps/{rank}")) for rank in range(world)]
            store.set("mingle/most", f"{steps.index(max(steps))} {max(steps)}")
            store.add("mingle/agreed", 1)
        self._watch.wait_for(store, "mingle/agreed", 1)
        source, steps = map(int, store.get("mingle/most").split())
        # Private: an attempt that has failed counts, and the name of the group would be another one than that of the others.
        distributed_c10d._group_count = 0
        hook = sys.excepthook
        dist.init_process_group(self._backend, store=store, rank=rank, world_size=world)
        self._hooks = hook, sys.excepthook
        self._watch.connected(store, rank, world)
        if self._backend == "gloo" and not torch.cuda.is_available():
            distributed_c10d.Work.wait = self._watch.patient_wait()
        self.assignment, self.generation = assignment, assignment.generation
        self.rank, self.world, self.source, self.steps, self.is_new = rank, world, source, steps, True

    def _leave(self):
        """Leaves torch's group. The exception is that of `on_event`."""
        watch, self._watch = self._watch, None
        if watch is None:
            return
        distributed_c10d.Work.wait = _wait
        watch.stop()
        if dist.is_initialized():
            # Their end waits for the threads of Gloo, of which one may be stuck.
            groups = [*_groups()] if watch.is_cut.is_set() else []
            dist.destroy_process_group()
            if groups:
                ends = threading.Thread(target=groups.clear, daemon=True)
                ends.start()
                # An end that the end of the process interrupts would abort the process.
                atexit.register(ends.join, FAILS.total_seconds())
            # Each group of torch puts a prefix before what the last one has.
            if sys.excepthook is self._hooks[1]:
                sys.excepthook = self._hooks[0]
        if watch.error is not None:
            raise watch.error


class _Over(RuntimeError):
    """The world is over, which `Group.step` hears as well."""


class _Watch(threading.Thread):
    """Waits for the end of a world, and then ends the collectives in it. The world is this thread's until `stop`."""

    def __init__(self, world, backend):
        super().__init__(name="mingle watch", daemon=True)
        self._world, self._backend = world, backend
        self.is_over, self.is_cut, self._stops = threading.Event(), threading.Event(), threading.Event()
        self.error = None
        self._lock = threading.Lock()
        self._begun, self._last, self._members = 0, None, None
        self._before, self._opened = set(_sockets()), None
        self._aborted = set()

    def connected(self, store, rank, world):
        """All are connected: `begins` counts from now on, and torch opens connections to the same hosts alone."""
        self._opened = set(_sockets()) - self._before
        with self._lock:
            self._members = store, rank, world

    def begins(self):
        """Whether this node begins another block. If newcomers are to come in, it does while another node has begun it."""
        with self._lock:
            if not self.is_over.is_set():
                self._begun += 1
                return True
        if self.is_cut.is_set():
            return False
        try:
            if self._last is None:
                store, _, world = self._members
                self.wait_for(store, "mingle/boundary", world)
                self._last = max(int(store.get(f"mingle/begun/{rank}")) for rank in range(world))
        except RuntimeError:
            return False
        self._begun += 1
        return self._begun <= self._last

    def wait_for(self, store, counter, number):
        """Waits until a counter of the store has come to this number."""
        pause = 0.001
        while store.add(counter, 0) < number:
            if self.is_cut.wait(pause):
                raise _Over
            pause = min(2 * pause, 0.016)

    def patient_wait(self):
        """`Work.wait`, but it ends where Gloo's does not. Gloo tells a send of a collective nothing of the end of its
        connection if the send is on its way, or comes after the other process has died, and waits until torch's timeout of
        30 minutes (gloo/transport/tcp/pair.cc, `signalException`).
        """

        def wait(work, *timeout, **more):
            if timeout or more or not _is_collective(work):
                return _wait(work, *timeout, **more)
            while True:
                was_cut = self.is_cut.is_set()
                try:
                    return _wait(work, FAILS)
                except RuntimeError as error:
                    if "Operation timed out!" not in str(error):
                        raise
                    if was_cut:
                        raise _Over from error

        return wait

    def stop(self):
        self._stops.set()
        self.join()

    def run(self):
        try:
            while not self._world.wait(LOOK / 1000):
                if self._stops.is_set():
                    return
            with self._lock:
                members, begun = self._members, self._begun
                self.is_over.set()
            if self._grows() and members is not None:
                self._wait_for_boundary(*members, begun)
        except BaseException as error:
            self.error = error
        self.is_cut.set()
        self.is_over.set()
        while not self._stops.is_set():
            self._abort()
            self.cut()
            # A connection may just be opened.
            self._stops.wait(LOOK / 1000)

    def _grows(self):
        return self._world.over is not None and self._world.over.how == "grows"

    def _wait_for_boundary(self, store, rank, _, begun):
        """Tells the others how many blocks this node has begun, and gives all of them time to come to the same number."""
        with contextlib.suppress(RuntimeError):
            store.set(f"mingle/begun/{rank}", str(begun))
            store.add("mingle/boundary", 1)
        end = time.monotonic() + BOUNDARY
        while self._grows() and time.monotonic() < end and not self._stops.wait(LOOK / 1000):
            pass

    def _abort(self):
        if "nccl" in self._backend:
            for group in _groups() - self._aborted:
                self._aborted.add(group)
                with contextlib.suppress(Exception):
                    group.abort()

    def cut(self):
        """Ends the connections of this process to the other members, also while another thread waits for them.

        Gloo has no abort (torch 2.15: `Backend::abort` does nothing), and tells nobody the descriptors of its connections. So
        all that were opened while torch connected end, and later ones to the same hosts, as of `new_group`.
        """
        # No descriptor may be free.
        with contextlib.suppress(OSError):
            later = {name: fd for name, fd in _sockets().items() if name not in self._before}
            hosts = {_peer(fd) for name, fd in later.items() if self._opened is None or name in self._opened}
            for fd in later.values():
                _peer(fd, ends=hosts - {None})


# torch's own `Work.wait`.
_wait = distributed_c10d.Work.wait


def _is_collective(work):
    """False for a single send or receive, which has no future: the timeout of a wait for it would end all connections."""
    try:
        work.get_future()
    except RuntimeError:
        return False
    return True


def _groups():
    """All groups of torch, those of `new_group` as well. Private."""
    world = getattr(distributed_c10d, "_world", None)
    return set(distributed_c10d._pg_map if world is None else world.pg_map)


def _sockets():
    """The sockets of this process: the descriptors, by names that no later socket has."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{fd}")
            if name.startswith("socket:"):
                found[name] = int(fd)
    return found


def _peer(fd, ends=()):
    """The host at the other end of a TCP connection; None for another descriptor. Connections to the hosts `ends` end."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as copy:
        if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
            host = copy.getpeername()[0]
            if host in ends:
                copy.shutdown(socket.SHUT_RDWR)
            return host
    return None


def _backend(name):
    """The backends of the group."""
    name = name or ("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    if name not in BACKENDS:
        raise _usage(f"backend={name!r}: mingle can end the collectives of {', '.join(map(repr, BACKENDS))} alone")
    if "nccl" in name:
        if not dist.is_nccl_available() or not hasattr(dist.ProcessGroup, "abort"):
            raise _usage(f"backend={name!r}: torch {torch.__version__} has no NCCL with ProcessGroup.abort(); 2.15 has")
        # Torch would end the whole process at the first error of a communicator.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    return name


def _usage(message):
    return UsageError(f"mingle.torch.Group: {message}", 2, "usage")
