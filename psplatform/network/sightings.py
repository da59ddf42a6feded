"""Transfers between hosts whose times are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SMALLEST_BYTES: Final = 65536
_SHORTEST_S: Final = 0.001
"""A smaller or shorter transfer takes as long as a message does, or as clocks differ: it says nothing about a rate."""

UNLIMITED: Final = 1e15
"""Bytes per second that no interface has: as long as nothing has been seen, none delays anything."""


Direction = tuple[str, bool]
"""A host, and whether it leads out of it."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A transfer between two hosts that has ended, or as if it did; times in seconds on one clock."""

    sender: str
    receiver: str
    size_bytes: float
    begin: float
    end: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.size_bytes / (self.end - self.begin)

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Those that it takes: out of its sender, and into its receiver."""
        return (self.sender, True), (self.receiver, False)

    @property
    def tells(self) -> bool:
        """Whether it says anything about the rate of an interface."""
        through_interfaces = self.sender != self.receiver
        return through_interfaces and self.size_bytes >= SMALLEST_BYTES and self.end - self.begin >= _SHORTEST_S
