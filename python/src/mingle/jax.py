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
from typing import Any, Optional

from jax._src.clusters import ClusterEnv

from . import Assignment, UsageError, _export
from . import join as _join

__all__ = ["MingleCluster", "TRIED", "join"]

# The versions of JAX that this was run with. ClusterEnv is no public interface of JAX, and another version may change it.
TRIED = ("0.10.2",)


def join(job_id: Optional[str] = None, world: Optional[int] = None, **options: Any) -> Assignment:
    """Joins a world for the next ``jax.distributed.initialize()``, with the arguments of :func:`mingle.join`. ``world``
    counts processes. Sets the variables of the world in this process, for JAX, NCCL and other libraries.
    """
    assignment = _join(job_id, world, **options)
    _export(assignment)
    MingleCluster._joins, MingleCluster._next = True, assignment
    return assignment


class MingleCluster(ClusterEnv):
    """Tells JAX the coordinator, the process count and the process ID. Its ``cluster_detection_method`` is ``"mingle"``."""

    name = "mingle"

    # Whether this process has joined by itself, so that its variables are of the world that it has joined last; and that
    # world until an initialization has taken it, since it holds the port of the coordinator.
    _joins = False
    _next: Optional[Assignment] = None

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
        host, port = cls._variable("MASTER_ADDR", str, timeout_secs), cls._variable("MASTER_PORT")
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{override_coordinator_port or port}"

    @classmethod
    def get_process_count(cls) -> int:
        return cls._variable("WORLD_SIZE")

    @classmethod
    def get_process_id(cls) -> int:
        index = cls._variable("RANK")
        # JAX opens the port next.
        if cls._next is not None:
            cls._next.close()
        return index

    @classmethod
    def get_local_process_id(cls) -> Optional[int]:
        # A process that is alone on its host has all devices.
        is_alone = os.environ.get("LOCAL_WORLD_SIZE", "") in ("", "1")
        local = None if is_alone else cls._variable("LOCAL_RANK")
        # JAX asks this last, so another initialization joins again.
        cls._next = None
        return local

    @classmethod
    def _variable(cls, name: str, kind: type = int, timeout: Optional[int] = None) -> Any:
        """A variable of the world, which this process joins now unless it is in a world already."""
        if cls._next is None and not cls._is_given():
            is_set = timeout is None or os.environ.get("MINGLE_TIMEOUT")
            join(**({} if is_set else {"timeout": timeout}))
        elif cls._next is None and "TORCHELASTIC_RUN_ID" in os.environ:
            message = "a worker of torchrun, which listens on the port of the world: start JAX by 'mingle run --workers' instead"
            raise UsageError(message, 2, "usage")
        try:
            return kind(os.environ[name])
        except (KeyError, ValueError):
            message = f"MINGLE_ROSTER_DIGEST says that this process is in a world, but {name} is not as mingle sets it; unset "
            raise UsageError(message + "MINGLE_ROSTER_DIGEST to join another world", 2, "usage") from None

    @classmethod
    def _is_given(cls) -> bool:
        """Whether the variables of this process have a world that a program has formed for it."""
        return not cls._joins and bool(os.environ.get("MINGLE_ROSTER_DIGEST"))


# JAX takes the first that is present, and a new one is the last. Slurm's and Open MPI's variables are there where mingle has
# read them as well.
ClusterEnv._cluster_types.remove(MingleCluster)
ClusterEnv._cluster_types.insert(0, MingleCluster)
