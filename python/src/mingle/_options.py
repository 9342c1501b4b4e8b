"""The types of the options of the program, which type checkers alone read."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Literal, Union

from typing_extensions import TypeAlias, TypedDict

# Seconds, or a text such as "90s" or "10m"; 0 is for ever.
Time: TypeAlias = Union[float, str, timedelta]
# One, or several. A text may have several with commas.
Many: TypeAlias = Union[str, list[str], tuple[str, ...]]
Path: TypeAlias = Union[str, os.PathLike[str]]


class Options(TypedDict, total=False):
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
    same: Many | None
    require_same: bool | None
    slots: int | None
    output: Many | None
    events: Path | None
    quiet: bool | None
    verbose: bool | None


class StayOptions(Options, total=False):
    """Those of a world that stays as well."""

    gone_after: Time | None
    grow: bool | None
    allow_split: bool | None
    stop_timeout: Time | None
