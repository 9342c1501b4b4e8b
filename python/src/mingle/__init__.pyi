import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Union

from typing_extensions import Self, TypeAlias, TypedDict, Unpack

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

__version__: str

# Seconds, or a text such as "90s" or "10m"; 0 is for ever.
Time: TypeAlias = Union[float, str, timedelta]
# One, or several. A text may have several with commas.
Many: TypeAlias = Union[str, list[str], tuple[str, ...]]
Path: TypeAlias = Union[str, os.PathLike[str]]

class Error(Exception):
    code: int
    kind: str
    facts: dict[str, Any]
    def __init__(
        self, message: str = "", code: int = 1, kind: str = "other", facts: dict[str, Any] | None = None
    ) -> None: ...

class UsageError(Error, ValueError): ...
class DeadlineError(Error, TimeoutError): ...
class ConflictError(Error): ...
class NetworkError(Error, ConnectionError): ...
class SecretError(DeadlineError): ...

class Member:
    rank: int
    id: str
    host: str
    address: str
    port: int
    slots: int
    metadata: dict[str, str]

class Assignment:
    job: str
    rank: int
    world: int
    master: tuple[str, int]
    local: str
    interface: str | None
    digest: str
    slots: dict[str, int]
    env: dict[str, str]
    unset: list[str]
    fabric: dict[str, Any]
    differences: list[str]
    timings: dict[str, int | None]
    roster: tuple[Member, ...]
    generation: int
    listener: int | None
    def to_dict(self) -> dict[str, Any]: ...
    def take_listener(self) -> int | None: ...
    def export(self, environ: MutableMapping[str, str] = ...) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

# The options of the program, with its defaults and variables.
class _Options(TypedDict, total=False):
    last_call: Time | None
    rank_key: str | None
    paths: Literal["auto", "all", "ring", "master"] | None
    multicast: str | None
    ipv6: bool | None
    secret_file: Path | None
    private: bool | None
    rank: int | Literal["hostname"] | None
    interface: Many | None
    master_port: int | None
    seed: Many | None
    seed_dir: Path | None
    broadcast: bool | None
    timeout: Time | None
    rdma: str | None
    set: Many | None
    same: Many | None
    require_same: bool | None
    slots: int | None
    output: Many | None
    events: Path | None
    quiet: bool | None
    verbose: bool | None

# Those of a world that stays as well.
class _StayOptions(_Options, total=False):
    gone_after: Time | None
    grow: bool | None
    allow_split: bool | None
    stop_timeout: Time | None

def join(
    job_id: str | None = None,
    world: int | str | None = None,
    *,
    listener: bool = True,
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
    **options: Unpack[_Options],
) -> Assignment: ...
async def join_async(
    job_id: str | None = None,
    world: int | str | None = None,
    *,
    listener: bool = True,
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
    **options: Unpack[_Options],
) -> Assignment: ...

class Over:
    how: Literal["exited", "killed", "gone", "left", "grows", "unknown"]
    rank: int | None
    host: str | None
    code: int | None
    text: str

class RunningWorld:
    def __init__(
        self,
        job_id: str | None = None,
        world: int | str | None = None,
        *,
        listener: bool = True,
        on_event: Callable[[Mapping[str, Any]], object] | None = None,
        **options: Unpack[_StayOptions],
    ) -> None: ...
    @property
    def state(self) -> Literal["forming", "running", "over", "finished", "left", "failed"]: ...
    @property
    def assignment(self) -> Assignment | None: ...
    @property
    def over(self) -> Over | None: ...
    @property
    def gone(self) -> tuple[Member, ...]: ...
    @property
    def suspected(self) -> tuple[Member, ...]: ...
    @property
    def waiting(self) -> int: ...
    @property
    def is_cut_off(self) -> bool: ...
    def fileno(self) -> int: ...
    def next(self, *, code: int = 1, holds_port: bool = False, timeout: float | None = None) -> Assignment | None: ...
    async def next_async(self, *, code: int = 1, holds_port: bool = False) -> Assignment | None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    async def wait_async(self) -> None: ...
    def finish(self, timeout: float | None = None) -> bool: ...
    async def finish_async(self) -> bool: ...
    def fail(self, code: int = 1) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def __iter__(self) -> Iterator[Assignment]: ...
