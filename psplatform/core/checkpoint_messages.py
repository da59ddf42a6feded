"""What coordinator and copies say to each other about checkpoints, beside the commits that are cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cut:
    """The state at `position`, after which no commit follows, belongs to checkpoint `number`."""

    term: int
    epoch: int
    number: int
    position: int


@dataclass(frozen=True, slots=True)
class Written:
    """A copy has written its part of checkpoint `number`: what the manifest must say of it, as plain values."""

    shard: int
    number: int
    position: int
    part: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotWritten:
    """A copy could not write its part of checkpoint `number`, because of `text`."""

    shard: int
    number: int
    text: str
