"""The coordinator in its surroundings: a standby that sees what it sees, and the copies that hold leases from it.

The coordinator is a deterministic state machine, so whoever handles the same events in the same order is in the same
state.  Every event is sent to the standby, which handles it and says so.  What must never be undone (a promotion, the
exclusion of a replica, sending a worker away, a checkpoint's manifest, the end of the run) happens only when the
standby has witnessed the event that led to it; no effect at all happens while the standby lags by more than a few
events.

A standby can take over once: under its own number, which is claimed where a number can be claimed only once.  A
coordinator whose standby is lost claims that number itself, and goes on alone only if it got it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from psplatform.core import messages as msg
from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.ending import Phase
from psplatform.core.effects import STANDBY, Appoint, Claim, Depart, Effect, Finish, Role, SaveModel, Seal, Send
from psplatform.core.events import Claimed, CopyLost, StandbyLost, Tick
from psplatform.core.grants import Grants
from psplatform.core.leases import entitlement

MOST_BEHIND: Final = 64
"""Events by which a standby may lag: fewer than the commits that servers remember, which it may have to ask for."""

_STANDBY: Final = "standby"


class Lead:
    """The coordinator that is in charge.

    Parameters
    ----------
    coordinator
        The state machine.
    grants
        Leases for copies and for the standby, or ``None`` where nobody can fall silent.
    standby
        Number of the standby, which has seen what this one has, or 0 for none.
    next_number
        The next standby's.
    appoints
        Whether there shall be a standby.

    Attributes
    ----------
    handled
        Events handled so far.
    entitled_until
        When its own lease, given by the standby, is over: from then on it gives none.
    replaced
        Whether another has taken over: it says and decides nothing any more.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        grants: Grants | None = None,
        standby: int = 0,
        next_number: int = 2,
        appoints: bool = False,
    ) -> None:
        self.coordinator = coordinator
        self.handled = 0
        self.standby = standby
        self.replaced = False
        self.entitled_until = float("inf")
        self.next_number = next_number
        self._appoints = appoints
        self._appointed = bool(standby)
        self._grants = grants
        self._promised: dict[float, float] = {}
        self._witnessed = 0
        self._held: deque[tuple[int, Effect]] = deque()
        self._own: dict[type, Callable[[Any, float], list[Effect]]] = {
            msg.Beat: self._on_beat,
            msg.Lease: self._on_lease,
            msg.Witnessed: self._on_witnessed,
            Tick: self._on_tick,
            StandbyLost: self._on_standby_lost,
            Claimed: self._on_claimed,
        }

    @property
    def term(self) -> int:
        """The coordinator's term."""
        return self.coordinator.state.term

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.coordinator.ending.phase is Phase.OVER

    @property
    def awaits_witness(self) -> bool:
        """Whether something is held back until the standby has seen what led to it."""
        return bool(self._held)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        if self.replaced:
            return []
        if isinstance(event, msg.Refused) and event.term > self.term:
            return self._step_down(f"a coordinator of term {event.term} has taken over")
        own = self._own.get(type(event))
        return own(event, now) if own is not None else self._decide(event, now)

    def _decide(self, event: Any, now: float) -> list[Effect]:
        self.handled += 1
        effects = self.coordinator.handle(event, now)
        if self.standby:
            observed = Send(STANDBY, msg.Observed(self.term, self.handled, now, event))
            effects = [observed, *self._let_through(effects)]
        return effects + self._appoint() if self._appoints else effects

    def _let_through(self, effects: list[Effect]) -> list[Effect]:
        far_behind = bool(self._held) and self._held[0][0] <= self.handled - MOST_BEHIND
        through = []
        for effect in effects:
            if _must_be_witnessed(effect):
                self._held.append((self.handled, effect))
            elif far_behind or self.handled - self._witnessed > MOST_BEHIND:
                self._held.append((self.handled - MOST_BEHIND, effect))
            else:
                through.append(effect)
        return through

    def _on_witnessed(self, message: msg.Witnessed, now: float) -> list[Effect]:
        if message.standby != self.standby:
            return []
        self._witnessed = max(self._witnessed, message.number)
        released = [effect for number, effect in self._held if number <= self._witnessed]
        self._held = deque(one for one in self._held if one[0] > self._witnessed)
        return released

    # --- the standby ---

    def _appoint(self) -> list[Effect]:
        if not self._appoints or self._appointed or self.over or self.coordinator.takeover.under_way:
            return []
        self._appointed = True
        self.next_number += 1
        return [Appoint(self.next_number - 1)]

    def enlist(self, number: int, now: float) -> tuple[Coordinator, int]:
        """Return what the standby of that number begins with: a coordinator in this one's state, and its events so far.

        From now on, what must be witnessed waits for it.
        """
        self.standby, self._witnessed = number, self.handled
        if self._grants is not None:
            self._grants.watch(_STANDBY, now)
            self._promised.clear()
            self.entitled_until = now + self._grants.first_s
        return deepcopy(self.coordinator), self.handled

    def without_standby(self) -> None:
        """Note that no standby could be made: one is appointed again when something has changed."""
        self._appointed = False

    def _on_standby_lost(self, event: StandbyLost, now: float) -> list[Effect]:
        if event.number != self.standby:
            return []
        if self._grants is not None:
            self._grants.forget(_STANDBY)
        return [Claim(self.standby)]

    def _on_claimed(self, event: Claimed, now: float) -> list[Effect]:
        if event.number != self.standby:
            return []
        if not event.granted:
            return self._step_down(f"the standby of term {event.number} has taken over")
        self.standby, self._appointed = 0, False
        self.entitled_until = float("inf")
        if self._grants is not None:
            self._grants.ceiling_s = float("inf")
        released = [effect for _, effect in self._held]
        self._held.clear()
        return released + self._appoint()

    def _step_down(self, reason: str) -> list[Effect]:
        self.replaced = True
        self._held.clear()
        return [Depart(reason)]

    # --- leases ---

    def _on_beat(self, beat: msg.Beat, now: float) -> list[Effect]:
        if self._grants is None or now > self.entitled_until:
            return []
        if beat.sender in self._copies():
            self._grants.watch(beat.sender, now)
        seconds = self._grants.renew(beat.sender, now)
        if seconds is None:
            return []
        return [Send(Role.copy(beat.sender), msg.Lease(self.term, beat.sent_at, seconds))]

    def _on_lease(self, lease: msg.Lease, now: float) -> list[Effect]:
        if self._grants is not None and lease.term == self.standby:
            self._grants.renew(_STANDBY, now)
            self.entitled_until = max(self.entitled_until, entitlement(lease.sent_at, lease.seconds))
            self._promised = {at: longest_s for at, longest_s in self._promised.items() if at >= lease.sent_at}
            self._grants.ceiling_s = min(self._promised.values(), default=self._grants.ceiling_s)
        return []

    def beat(self, now: float) -> msg.Beat:
        """Return what asks the standby for a lease, and promises how long those given to copies are at most."""
        longest_s = 0.0
        if self._grants is not None:
            # A longer one counts when the standby has heard of it, a shorter one at once.
            longest_s = self._promised[now] = self._grants.longest_left(now)
            self._grants.ceiling_s = min(self._grants.ceiling_s, longest_s)
        return msg.Beat("coordinator", now, longest_s)

    def _on_tick(self, event: Tick, now: float) -> list[Effect]:
        if self._grants is None or (self.over and not self._held):
            return []
        copies = self._copies()
        for name in copies:
            self._grants.watch(name, now)
        effects: list[Effect] = []
        if self.standby:
            effects.append(Send(STANDBY, self.beat(now)))
        for name, silence_s in self._grants.expire(now, self._irreplaceable(self._grants, now)):
            reason = f"silent for {silence_s:.2f} s"
            if name == _STANDBY:
                effects += self._on_standby_lost(StandbyLost(self.standby, reason), now)
            elif name in copies:
                effects += self._decide(CopyLost(name, name, reason, silence_s), now)
        return effects

    def _copies(self) -> set[str]:
        state = self.coordinator.state
        if state.plan.protection is not None and state.plan.protection.cold:
            return {one.server for one in state.shards if not one.asleep}  # what is in the store cannot fall silent
        return {name for one in state.shards for name in one.copies}

    def _irreplaceable(self, grants: Grants, now: float) -> set[str]:
        # Where a shard's server and whoever could be promoted are all silent, the run would be over without them: the
        # first to be heard shows who is only slow, or was stopped for a while.
        silent: set[str] = set()
        for one in self.coordinator.state.shards:
            able = {one.server, *one.in_sync}
            if all(grants.is_over(name, now) for name in able):
                silent |= able
        return silent


def _must_be_witnessed(effect: Effect) -> bool:
    if isinstance(effect, Send):
        return isinstance(effect.message, msg.Promote | msg.Exclude | msg.Stop)
    return isinstance(effect, Seal | SaveModel | Finish)
