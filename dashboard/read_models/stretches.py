"""Where in a log the gradients of any stretch of the run's time are, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from psplatform.dashboard.read_models.batches import Clock
from psplatform.dashboard.read_models.lanes import Span
from psplatform.telemetry.log.segments import Position


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive segments of a log.

    Attributes
    ----------
    after, until
        The segments are those after one position up to the other.
    clock
        As of their beginning.
    span
        When their gradients were under way: some of them long before they were announced there.
    additions
        How many additions became this stretch.
    """

    after: Position
    until: Position
    clock: Clock
    span: Span
    additions: int = 1

    def and_next(self, following: Stretch) -> Stretch:
        """Return this stretch and the one that follows it as one."""
        additions = self.additions + following.additions
        span = self.span.and_also(following.span)
        return replace(self, until=following.until, span=span, additions=additions)


class Stretches:
    """All stretches of a log as far as it was read, at most `limit` (even): of a longer log, each has more segments."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 1
        self._found: list[Stretch] = []

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def add(self, stretch: Stretch) -> None:
        """Add what was read after the newest one."""
        if self._found and self._found[-1].additions < self._size:
            self._found[-1] = self._found[-1].and_next(stretch)
            return
        if len(self._found) == self._limit:
            pairs = zip(self._found[0::2], self._found[1::2], strict=True)
            self._found = [one.and_next(following) for one, following in pairs]
            self._size *= 2
        self._found.append(stretch)

    def meeting(self, start_s: float, end_s: float) -> Iterator[Stretch]:
        """Yield those in which gradients may be that were under way between two times, in order."""
        yield from (one for one in self._found if one.span.meets(start_s, end_s))
