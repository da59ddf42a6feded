"""Transfers that are under way: what is left of them is expected anew as often as rates are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from psplatform.network.sightings import Sighting
from psplatform.network.state import NetworkState, Transfer

_SHORTEST_S: Final = 0.005
"""Seconds that are looked ahead for what is late, at least."""


@dataclass(eq=False)
class Leg:
    """A transfer under way: what is left of it by receiver, in bytes, and how it was last expected to go on."""

    left: dict[str, float]
    expected: Transfer

    def __post_init__(self) -> None:
        self._sizes, self._begin = dict(self.left), self.expected.begin
        self._due = self.expected.end

    @property
    def sender(self) -> str:
        """The host that sends."""
        return self.expected.sender

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts that it concerns."""
        return self.sender, *self._sizes

    @property
    def ways(self) -> list[tuple[str, str]]:
        """The sender with each receiver."""
        return [(self.sender, receiver) for receiver in self._sizes]

    def has_begun(self, now: float) -> bool:
        """Whether it was to begin by now; one of which nobody knows when it gets anywhere was sent at once."""
        return self._begin <= now or math.isinf(self._begin)

    def may_begin(self, now: float) -> bool:
        """Let it begin from now on, unless it has begun; return whether that makes a difference."""
        if self.has_begun(now):
            return False
        self.expected = self.expected._replace(begin=now)
        return True

    def begin(self) -> float:
        """Begin when it is expected to, but not later than it was to."""
        self._begin = min(self._begin, self.expected.begin)
        return self._begin

    def until(self, now: float, begin: float | None = None) -> list[Sighting]:
        """Return what has begun, at `begin` if that is known, as if it ended now."""
        begin = self._begin if begin is None else begin
        return [Sighting(self.sender, to, size, begin, now) for to, size in self._sizes.items() if begin < now]

    def advance(self, now: float) -> None:
        """Take what was expected to go before `now` as gone."""
        if math.isfinite(self.expected.end):
            self.left = _bytes_since(now, self.expected)

    def go_on(self, state: NetworkState, begin: float) -> float:
        """Expect the rest at the rates of `state`, and reserve it; return when it ends."""
        rest = state.transfer(self.sender, list(self.left.items()), begin)
        self.expected = rest
        self._due = rest.end
        state.reserve(rest)
        return rest.end

    def overrun(self, state: NetworkState, now: float) -> float:
        """Reserve for one that should be there and is not, without anybody knowing why; return when it may be.

        It is expected to be late by twice as much as it is now, and so to have gone at the rate that follows from that:
        one from a slow host keeps little of a fast receiver busy, one that waits behind others all of it.
        """
        if not math.isfinite(self._begin) or now <= self._begin:
            return now
        end = now + max(now - self._due, _SHORTEST_S)
        for receiver, size_bytes in self._sizes.items():
            if receiver != self.sender:
                state.occupy(self.sender, receiver, now, end, size_bytes / (end - self._begin))
        return end

    def may_go_on(self, now: float) -> float:
        """Return when the rest may go on: not before it was to begin."""
        return now if math.isinf(self.expected.begin) else max(now, self.expected.begin)


def _bytes_since(moment: float, transfer: Transfer) -> dict[str, float]:
    """Return the bytes by receiver that were expected to go from a moment on."""
    left: dict[str, float] = {}
    for receiver, taken in transfer.parts:
        rest = sum(max(0.0, one.end - max(one.begin, moment)) * one.rate for one in taken)
        if rest > 0:
            left[receiver] = left.get(receiver, 0.0) + rest
    return left
