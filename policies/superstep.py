"""What happens between two barriers of Elastic BSP: the pushes so far, and where the next barrier is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MONITORED_PUSHES = 2
"""Pushes of every worker that a monitoring phase waits for: two of them make an interval."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A barrier that was decided; without quotas, one at the next push of everybody.

    Attributes
    ----------
    time
        Time at which the last worker is expected there.
    spread
        Seconds that the first one is expected to wait (d* of the paper).
    quotas
        By slot, the number of pushes from the decision to the barrier.
    stops_at
        By slot, the time from which on a push is taken for the final one.
    """

    time: float = float("-inf")
    spread: float = 0.0
    quotas: dict[int, int] = field(default_factory=dict)
    stops_at: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Superstep:
    """The span between two barriers.

    Attributes
    ----------
    meeting
        The barrier it ends at; ``None`` during the monitoring phase.
    pushes
        By slot, pushes since the last barrier; once the next is decided, pushes since then.
    arrived
        Slots whose worker made its final push.
    pooled
        Whether a final push was put into the pool.
    """

    meeting: Meeting | None = None
    pushes: dict[int, int] = field(default_factory=dict)
    arrived: set[int] = field(default_factory=set)
    pooled: bool = False
    _monitored: int = 0

    def push(self, slot: int) -> None:
        """Count a push."""
        self.pushes[slot] = self.pushes.get(slot, 0) + 1
        self._monitored += self.pushes[slot] == MONITORED_PUSHES

    def decide(self, meeting: Meeting) -> None:
        """End the monitoring phase."""
        self.meeting = meeting
        self.pushes = {}

    def forget(self, slot: int) -> None:
        """Another process is in `slot`: nothing is known of it, and nothing was agreed with it."""
        self._monitored -= self.is_monitored(slot)
        self.pushes.pop(slot, None)
        if self.meeting is not None:
            self.meeting.quotas.pop(slot, None)
            self.meeting.stops_at.pop(slot, None)

    def may_be_monitored(self, live: int) -> bool:
        """Whether so many workers can all have been monitored, in O(1): it counts also those who left since."""
        return self._monitored >= live

    def is_monitored(self, slot: int) -> bool:
        """Whether the worker in `slot` pushed often enough since the last barrier."""
        return self.pushes.get(slot, 0) >= MONITORED_PUSHES

    def is_final(self, slot: int, now: float, *, by_count: bool) -> bool:
        """Whether the push just counted is the worker's last before the barrier.

        A worker that joined after the decision stops at its first push after the others are expected at the barrier.
        """
        if self.meeting is None:
            return False
        if by_count and slot in self.meeting.quotas:
            return self.pushes[slot] >= self.meeting.quotas[slot]
        return now >= self.meeting.stops_at.get(slot, self.meeting.time)

    def state(self) -> dict[str, Any]:
        """Return plain values; tables by slot become lists of pairs."""
        meeting = self.meeting
        return {
            "meeting": meeting and [meeting.time, meeting.spread, _rows(meeting.quotas), _rows(meeting.stops_at)],
            "pushes": _rows(self.pushes),
            "arrived": sorted(self.arrived),
            "pooled": self.pooled,
            "monitored": self._monitored,
        }

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Superstep:
        """Return the superstep whose `state` that is."""
        meeting = None
        if state["meeting"] is not None:
            time, spread, quotas, stops_at = state["meeting"]
            meeting = Meeting(time, spread, dict(quotas), dict(stops_at))
        return cls(meeting, dict(state["pushes"]), set(state["arrived"]), state["pooled"], state["monitored"])


def _rows(table: dict[int, Any]) -> list[list[Any]]:
    return [[slot, table[slot]] for slot in sorted(table)]
