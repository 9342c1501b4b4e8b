"""``import mingle.jax`` lets processes of JAX find each other without a launcher:

    import jax, mingle.jax
    jax.distributed.initialize()

The job ID and the number of processes come from ``MINGLE_JOB_ID`` and ``MINGLE_WORLD``, or from an earlier call:

    mingle.jax.join("foo", 4)

A process that already has a rank, from ``mingle run`` or ``eval "$(mingle ...)"``, keeps it.

JAX opens the port of process 0 itself, since gRPC takes no descriptor. mingle therefore closes its listening socket just
before, and another program could take the port in the milliseconds between.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from jax._src.clusters import ClusterEnv

from . import Assignment, UsageError, _local
from . import join as _join

__all__ = ["MingleCluster", "TRIED", "join"]

# The versions of JAX that this was run with. ClusterEnv is no public interface of JAX, and another version may change it.
TRIED = ("0.10.2",)


class _Place(NamedTuple):
    """A process in its world, in the terms of JAX."""

    master: tuple[str, int]
    count: int
    index: int
    # The index among the processes of this host; None for a process that is alone there, and has all devices.
    local: Optional[int]
    # It holds the port of the coordinator.
    assignment: Optional[Assignment] = None


def join(job_id: Optional[str] = None, world: Optional[int] = None, **options: Any) -> Assignment:
    """Joins a world for the next ``jax.distributed.initialize()``, with the arguments of :func:`mingle.join`. ``world``
    counts processes. Sets the variables of the world in this process, for NCCL and other libraries.
    """
    assignment = _join(job_id, world, **options)
    assignment.export()
    local, here = _local(assignment)
    MingleCluster._joins = True
    MingleCluster._next = _Place(
        assignment.master, assignment.world, assignment.rank, local if here > 1 else None, assignment
    )
    return assignment


class MingleCluster(ClusterEnv):
    """Tells JAX the coordinator, the process count and the process ID. Its ``cluster_detection_method`` is ``"mingle"``."""

    name = "mingle"

    # The place that the next initialization takes, and whether this process has joined by itself: its variables are of
    # the world that it has joined last then.
    _next: Optional[_Place] = None
    _joins = False

    @classmethod
    def is_env_present(cls) -> bool:
        if cls._next is not None or cls._is_given():
            return True
        # The coordinator of another world is not rank 0 of this one.
        return bool(os.environ.get("MINGLE_JOB_ID")) and not os.environ.get("JAX_COORDINATOR_ADDRESS")

    @classmethod
    def get_coordinator_address(
        cls, timeout_secs: Optional[int] = None, override_coordinator_port: Optional[str] = None
    ) -> str:
        host, port = cls._place(timeout_secs).master
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{override_coordinator_port or port}"

    @classmethod
    def get_process_count(cls) -> int:
        return cls._place().count

    @classmethod
    def get_process_id(cls) -> int:
        place = cls._place()
        # JAX opens the port next.
        if place.assignment is not None:
            place.assignment.close()
        return place.index

    @classmethod
    def get_local_process_id(cls) -> Optional[int]:
        # JAX asks this last, so another initialization joins again.
        place, cls._next = cls._place(), None
        return place.local

    @classmethod
    def _place(cls, timeout: Optional[int] = None) -> _Place:
        if cls._next is None and cls._is_given():
            cls._next = _given()
        elif cls._next is None:
            is_set = timeout is None or os.environ.get("MINGLE_TIMEOUT")
            join(**({} if is_set else {"timeout": timeout}))
        assert cls._next is not None
        return cls._next

    @classmethod
    def _is_given(cls) -> bool:
        """Whether the variables of this process have a world that a program has formed for it."""
        return not cls._joins and bool(os.environ.get("MINGLE_ROSTER_DIGEST"))


def _given() -> _Place:
    """The place in the world that the variables name."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise UsageError(
            "a worker of torchrun, which listens on the port of the world: start JAX by 'mingle run --workers' instead",
            2,
            "usage",
        )
    local = None
    try:
        master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        count, index = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        if int(os.environ.get("LOCAL_WORLD_SIZE") or 1) > 1:
            local = int(os.environ["LOCAL_RANK"])
    except (KeyError, ValueError) as error:
        raise UsageError(
            "MINGLE_ROSTER_DIGEST says that this process is in a world, but one of MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK "
            f"and LOCAL_RANK is not as mingle sets it: {error!r}; unset MINGLE_ROSTER_DIGEST to join another world",
            2,
            "usage",
        ) from None
    return _Place(master, count, index, local)


# JAX takes the first that is present, and a new one is the last. Slurm's and Open MPI's variables are there where mingle has
# read them as well.
ClusterEnv._cluster_types.remove(MingleCluster)
ClusterEnv._cluster_types.insert(0, MingleCluster)
