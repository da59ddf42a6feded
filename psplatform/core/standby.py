"""The standby supervisor: it handles what the coordinator handles, watches it, and takes over when it is lost.

What it would do, it does not: of the effects it keeps the timers that are set, and the log records that may not be in
the store yet.  It never takes over a run that has ended, nor one whose coordinator has claimed its number before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core import messages as msg
from psplatform.core.coordination import Coordinator
from psplatform.core.effects import COORDINATOR, CancelTimer, Claim, Depart, Effect, Log, Send, SetTimer, TakeOver
from psplatform.core.events import Claimed, LeadLost, Tick
from psplatform.core.grants import Grants
from psplatform.core.lead import Lead

_LEAD = "coordinator"


class Standby:
    """The witness of one coordinator.

    Parameters
    ----------
    number
        The term under which it takes over.
    coordinator, handled
        What `psplatform.core.lead.Lead.enlist` returned.
    timers
        The timers that are set, by tag.
    grants
        Leases for the coordinator, or ``None`` where it cannot fall silent.

    Attributes
    ----------
    records
        Log records of the events it has seen, the oldest of which may have been dropped (`forget_records`).
    """

    def __init__(
        self,
        number: int,
        coordinator: Coordinator,
        handled: int,
        *,
        timers: dict[str, float] | None = None,
        grants: Grants | None = None,
        now: float = 0.0,
    ) -> None:
        self.number = number
        self.coordinator = coordinator
        self.handled = handled
        self.timers = dict(timers or {})
        self.records: list[dict[str, Any]] = []
        self._early: dict[int, msg.Observed] = {}
        self._grants = grants
        self._heard_of: tuple[float, float] | None = None
        self._reason: LeadLost | None = None
        self._gone = False
        self._finished = False
        if grants is not None:
            grants.watch(_LEAD, now)
        self._handlers: dict[type, Callable[[Any, float], list[Effect]]] = {
            msg.Observed: self._on_observed,
            msg.Beat: self._on_beat,
            Tick: self._on_tick,
            LeadLost: self._on_lead_lost,
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

    def _on_observed(self, message: msg.Observed, now: float) -> list[Effect]:
        if message.term != self.term or self._reason is not None:
            return []
        if message.number > self.handled:
            self._early[message.number] = message
        while self.handled + 1 in self._early:
            self.handled += 1
            following = self._early.pop(self.handled)
            self._follow(following)
        return [Send(COORDINATOR, msg.Witnessed(self.number, self.handled))]

    def _follow(self, message: msg.Observed) -> None:
        for effect in self.coordinator.handle(message.event, message.now):
            if isinstance(effect, SetTimer):
                self.timers[effect.tag] = effect.at
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.tag, None)
            elif isinstance(effect, Log):
                self.records.append(effect.record)

    def _on_beat(self, beat: msg.Beat, now: float) -> list[Effect]:
        seconds = self._grants.renew(_LEAD, now) if self._grants is not None else None
        if seconds is None or self._reason is not None:
            return []
        if self._heard_of is None or beat.sent_at >= self._heard_of[0]:
            self._heard_of = beat.sent_at, beat.longest_s
        return [Send(COORDINATOR, msg.Lease(self.number, beat.sent_at, seconds))]

    def _on_tick(self, event: Tick, now: float) -> list[Effect]:
        for _, silence_s in self._grants.expire(now) if self._grants is not None else ():
            return self._on_lead_lost(LeadLost(f"silent for {silence_s:.2f} s", silence_s), now)
        return []

    def _on_lead_lost(self, event: LeadLost, now: float) -> list[Effect]:
        if self._reason is not None:
            return []
        self._reason = event
        if self.coordinator.ending.phase.value == "over":
            return self._depart("the run has ended")
        return [Claim(self.number)]

    def _on_claimed(self, event: Claimed, now: float) -> list[Effect]:
        if event.number != self.number or self._reason is None:
            return []
        return [TakeOver(self.number)] if event.granted else self._depart("the coordinator has another standby")

    def _depart(self, reason: str) -> list[Effect]:
        self._gone = True
        return [Depart(reason)]

    def rise(
        self, now: float, *, grants: Grants | None = None, next_number: int = 0, process: str = ""
    ) -> tuple[Lead, list[Effect]]:
        """Become the coordinator, in `process`; return it, and what it does first."""
        self._gone = True
        number = max(next_number, self.number + 1)
        if grants is not None:
            grants.succeed(self._heard_of[1] if self._heard_of is not None else None)
        lead = Lead(self.coordinator, grants=grants, next_number=number, appoints=True)
        lead.handled = self.handled
        reason = self._reason or LeadLost("unknown")
        effects: list[Effect] = [SetTimer(tag, at) for tag, at in sorted(self.timers.items())]
        return lead, effects + self.coordinator.take_over(self.number, reason, now, process)
