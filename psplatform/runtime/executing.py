"""What a coordinator's process does about the effects of its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from psplatform.core.effects import (
    Appoint,
    CancelTimer,
    Claim,
    Consult,
    Depart,
    Discard,
    Dismiss,
    Effect,
    Evaluate,
    Finish,
    Log,
    Recruit,
    Redirect,
    Retire,
    SaveModel,
    Seal,
    Send,
    SetTimer,
)
from psplatform.core.events import TimerFired
from psplatform.core.lead import Lead
from psplatform.core.messages import Commit, Lease, Moved, Observed
from psplatform.errors import PsplatformError
from psplatform.runtime.claims import Claims
from psplatform.runtime.coordinator_process import CoordinatorProcess
from psplatform.runtime.copy_staff import CopyStaff
from psplatform.runtime.deputy import DECIDED_S, TOGETHER_S
from psplatform.runtime.journal import Journal
from psplatform.runtime.sealing import Sealer
from psplatform.runtime.staff import Staff
from psplatform.runtime.standbys import Standbys
from psplatform.runtime.timers import LoopTimers


class ExecutorHost(CoordinatorProcess, Protocol):
    """What effects concern in the coordinator's process."""

    journal: Journal
    copies: CopyStaff
    staff: Staff
    standbys: Standbys
    claims: Claims
    sealer: Sealer

    @property
    def lead(self) -> Lead:
        """The coordinator."""

    def step_down(self) -> None:
        """Decide and say nothing more: another has taken over."""

    def finish(self, failure: PsplatformError | None) -> None:
        """Bring the run to its end in the background."""


class Executor:
    """Hands each effect to the part of the coordinator's process that it concerns, and keeps the timers."""

    def __init__(self, host: ExecutorHost) -> None:
        self._host = host
        self._timers = timers = LoopTimers(lambda: host.elapsed_s, lambda tag: host.feed(TimerFired(tag)))
        self._at_hand: list[Effect] = []
        self._listener = ""
        self._answers: list[Any] = []
        self._table: Mapping[type, Callable[[Any], None]] = {
            Send: self._send,
            Log: lambda effect: host.journal.append(effect.record),
            SetTimer: lambda effect: timers.set(effect.tag, effect.at),
            CancelTimer: lambda effect: timers.cancel(effect.tag),
            Evaluate: self._order,
            SaveModel: self._order,
            Dismiss: self._dismiss,
            Redirect: self._redirect,
            Recruit: lambda effect: host.copies.recruit(effect.shard),
            Retire: lambda effect: host.copies.retire(effect.copy),
            Seal: self._seal,
            Discard: lambda effect: host.sealer.discard(effect.number),
            Appoint: lambda effect: host.standbys.appoint(effect.number),
            Claim: self._claim,
            Consult: lambda effect: host.claims.consult(effect.number),
            Depart: lambda effect: host.step_down(),
            Finish: lambda effect: host.finish(effect.failure),
        }

    def execute(self, effects: list[Effect]) -> None:
        """Execute effects in their order."""
        self._at_hand = effects
        for effect in effects:
            self._table[type(effect)](effect)

    @contextmanager
    def answering(self, sender: str) -> Iterator[list[Any]]:
        """Collect the leases of `sender`, which waits for an answer, instead of sending them."""
        self._listener, self._answers = sender, []
        try:
            yield self._answers
        finally:
            self._listener = ""

    @property
    def timers(self) -> dict[str, float]:
        """When each timer is due, by tag, in the run's time."""
        return self._timers.due

    def close(self) -> None:
        """Let no timer fire any more."""
        self._timers.close()

    def _send(self, effect: Send) -> None:
        to, message, host = effect.to, effect.message, self._host
        if to.name == self._listener and isinstance(message, Lease):
            self._answers.append(message)
        elif to.kind == "copy":
            host.copies.send(to.name, message)
        elif to.kind == "standby":
            host.standbys.tell(message, self._may_wait_s(message))
        else:
            if isinstance(message, Moved) and (place := host.copies.place_of(message.copy)) is not None:
                host.staff.send(to.name, place)
            host.staff.send(to.name, message)

    def _may_wait_s(self, message: Any) -> float:
        if not isinstance(message, Observed) or self._host.lead.awaits_witness:
            return 0.0
        decided = any(isinstance(one, Send) and isinstance(one.message, Commit) for one in self._at_hand)
        return DECIDED_S if decided else TOGETHER_S

    def _claim(self, effect: Claim) -> None:
        self._host.standbys.suspect(effect.number)
        self._host.claims.claim(effect.number)

    def _order(self, effect: Evaluate | SaveModel) -> None:
        self._host.staff.order(effect)

    def _seal(self, effect: Seal) -> None:
        self._host.sealer.seal(effect)

    def _dismiss(self, effect: Dismiss) -> None:
        self._host.copies.forget(effect.member, self._host.lead.coordinator.state.last_position)
        self._host.staff.dismiss(effect.member, effect.reason)

    def _redirect(self, effect: Redirect) -> None:
        self._host.staff.redirect(effect)
