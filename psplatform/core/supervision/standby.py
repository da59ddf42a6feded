"""The standby supervisor: it handles what the coordinator handles, watches it, and takes over when it is lost.

What it would do, it does not: of the effects it keeps the timers that are set, and the log records that may not be in
the store yet.  It never takes over a run whose coordinator has claimed its number before; one that has ended it takes
over only to say so, where the coordinator was lost before it had.

Of several standbys one takes over: the one that has claimed its own number, and every lower one that was open, those
in the name of the lost coordinator.  A number that was claimed in that name is of no use to its standby, so no two can
have all that they need.  It claims its own first: a coordinator that has gone on without it must not lose its other
standbys by that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from psplatform.core.coordination import Coordinator
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelTimer, Claim, Depart, Effect, Log, Send, SetTimer, TakeOver
from psplatform.core.protocol.events import Claimed, CoordinatorLost, Tick
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator

_LEAD: Final = "coordinator"

PRECEDENCE_S: Final = 0.5
"""For a standby of a lower number to take over, before its number is claimed so that it cannot."""


def standby_name(term: int, number: int) -> str:
    """Return the name of a standby of the coordinator of `term`: two coordinators may count alike."""
    return f"standby-{number}" if number == term + 1 else f"standby-{term}-{number}"


class Standby:
    """The witness of one coordinator.

    Parameters
    ----------
    number
        The term under which it takes over.
    lowest_number
        The lowest number of a standby of the same coordinator that may take over, this one's or another's.
    coordinator, handled
        What `psplatform.core.supervision.replicated_coordinator.ReplicatedCoordinator.enlist` returned.
    timers
        The timers that are set, by tag.
    grants
        Leases for the coordinator, or ``None`` where it cannot fall silent.

    Attributes
    ----------
    others
        The lower numbers of other standbys that may take over.
    records
        Log records of the events it has seen, the oldest of which may have been dropped (`forget_records`).
    """

    def __init__(
        self,
        number: int,
        coordinator: Coordinator,
        handled: int,
        *,
        lowest_number: int | None = None,
        timers: dict[str, float] | None = None,
        grants: Grants | None = None,
        now: float = 0.0,
    ) -> None:
        self.number = number
        self.others = range(number if lowest_number is None else lowest_number, number)
        self._open = {number, *self.others}
        self.coordinator = coordinator
        self.handled = handled
        self.timers = dict(timers or {})
        self.records: list[dict[str, Any]] = []
        self._early: dict[int, msg.LogEntry] = {}
        self._grants = grants
        self._heard_of: tuple[float, float] | None = None
        self._reason: CoordinatorLost | None = None
        self._gone = False
        self._finished = False
        if grants is not None:
            grants.watch(_LEAD, now)
        self._handlers: dict[type, Callable[[Any, float], list[Effect]]] = {
            msg.LogEntry: self._on_log_entry,
            msg.Beat: self._on_beat,
            Tick: self._on_tick,
            CoordinatorLost: self._on_lead_lost,
            Claimed: self._on_claimed,
        }

    @property
    def term(self) -> int:
        """The term of the coordinator it watches."""
        return self.coordinator.state.term

    @property
    def follows(self) -> bool:
        """Whether it still takes the coordinator's word: it has not given it up."""
        return self._reason is None

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        handler = None if self._gone else self._handlers.get(type(event))
        return handler(event, now) if handler is not None else []

    def forget_records(self, count: int) -> None:
        """Drop the oldest `count` records: they are in the store."""
        del self.records[:count]

    def _on_log_entry(self, message: msg.LogEntry, now: float) -> list[Effect]:
        if message.term != self.term or self._reason is not None:
            return []
        if message.number > self.handled:
            self._early[message.number] = message
        while self.handled + 1 in self._early:
            self.handled += 1
            following = self._early.pop(self.handled)
            self._follow(following)
        return [Send(COORDINATOR, msg.Acknowledged(self.number, self.handled))]

    def _follow(self, message: msg.LogEntry) -> None:
        for effect in self.coordinator.handle(message.event, message.now):
            if isinstance(effect, Log):
                self.records.append(effect.record)
            elif isinstance(effect, SetTimer):
                self.timers[effect.tag] = effect.at
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.tag, None)

    def _on_beat(self, beat: msg.Beat, now: float) -> list[Effect]:
        seconds = self._grants.renew(_LEAD, now) if self._grants is not None else None
        if seconds is None or self._reason is not None:
            return []
        if self._heard_of is None or beat.sent_at >= self._heard_of[0]:
            self._heard_of = beat.sent_at, beat.longest_s
        return [Send(COORDINATOR, msg.Lease(self.number, beat.sent_at, seconds))]

    def _on_tick(self, event: Tick, now: float) -> list[Effect]:
        for _, silence_s in self._grants.expire(now) if self._grants is not None else ():
            return self._on_lead_lost(CoordinatorLost(f"silent for {silence_s:.2f} s", silence_s), now)
        return []

    def _on_lead_lost(self, event: CoordinatorLost, now: float) -> list[Effect]:
        if self._reason is not None:
            return []
        self._reason = event
        return [Claim(self.number)]

    def _on_claimed(self, event: Claimed, now: float) -> list[Effect]:
        if event.number not in self._open or self._reason is None:
            return []
        if not event.granted:
            return self._depart("the coordinator has another standby")
        self._open.discard(event.number)
        if not self._open:
            return [TakeOver(self.number)]
        if event.number != self.number:
            return []
        return [Claim(one, out=True, after_s=PRECEDENCE_S) for one in self.others]

    def _depart(self, reason: str) -> list[Effect]:
        self._gone = True
        return [Depart(reason)]

    def rise(
        self, now: float, *, grants: Grants | None = None, appoints: int = 1, process: str = ""
    ) -> tuple[ReplicatedCoordinator, list[Effect]]:
        """Become the coordinator, in `process`, with so many standbys; return it, and what it does first."""
        self._gone = True
        if grants is not None:
            grants.succeed(self._heard_of[1] if self._heard_of is not None else None)
        lead = ReplicatedCoordinator(self.coordinator, grants=grants, next_number=self.number + 1, appoints=appoints)
        lead.handled = self.handled
        reason = self._reason or CoordinatorLost("unknown")
        effects: list[Effect] = [SetTimer(tag, at) for tag, at in sorted(self.timers.items())]
        return lead, effects + self.coordinator.take_over(self.number, reason, now, process)
