"""The coordinator in its surroundings: standbys that see what it sees, and the copies that hold leases from it.

The coordinator is a deterministic state machine, so a standby that handles the same events in the same order is in the
same state.  Every event is sent to the standbys, which handle it and say so.  What must never be undone (a promotion,
a position passed over because its gradients are lost, the exclusion of a replica, sending a worker away, a checkpoint's
manifest, the end of the run) happens only when every standby has witnessed the event that led to it; no effect at all
happens while one of them lags by more than a few events.

A standby can take over once: under its own number, which is claimed where a number can be claimed only once
(`psplatform.core.supervision.standby`).  A coordinator that has lost a standby claims that number itself, and goes on
without it only if it got it.

A server goes on without its last replica only when the scheduler, which is no part of the run, has been heard since the
replica was lost.  A coordinator that reaches neither waits: it may be the one that is cut off, and what it made of the
model then would be known to nobody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final

from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.ending import Phase
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Appoint, Claim, Consult, Depart, Effect, Finish, SaveModel, Seal, Send
from psplatform.core.protocol.events import Claimed, Consulted, CopyLost, StandbyLost, Tick
from psplatform.core.protocol.names import STANDBY, Role
from psplatform.core.supervision.leases import Grants, entitlement

_IRREVOCABLE: Final = frozenset({Seal, SaveModel, Finish})
_IRREVOCABLE_ORDERS: Final = frozenset({msg.Promote, msg.Exclude, msg.Stop})
"""Effects, and messages, that must never be undone; a commit without gradients is another."""

MOST_BEHIND: Final = 64
"""Events by which a standby may lag: fewer than the commits that servers remember, which it may have to ask for."""


class ReplicatedCoordinator:
    """The coordinator that is in charge.

    Parameters
    ----------
    coordinator
        The state machine.
    grants
        Leases for copies and for the standbys, or ``None`` where nobody can fall silent.
    next_number
        The next standby's.
    appoints
        How many standbys there shall be.

    Attributes
    ----------
    handled
        Events handled so far.
    standbys
        By the number of each standby, the events that it has witnessed.
    replaced
        Whether another has taken over: it says and decides nothing any more.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        grants: Grants | None = None,
        next_number: int = 2,
        appoints: int = 0,
    ) -> None:
        self.coordinator = coordinator
        self.handled = 0
        self.standbys: dict[int, int] = {}
        self.replaced = False
        self.next_number = next_number
        self._appoints = appoints
        self._appointed: set[int] = set()
        self._entitlements: dict[int, float] = {}
        self._grants = grants
        self._promised: dict[float, float] = {}
        self._heard: dict[int, float] = {}
        self._held: deque[tuple[int, Effect]] = deque()
        self._consulting = 0
        protection = coordinator.state.plan.protection
        self._consults = protection is not None and not protection.alone
        self._own: dict[type, Callable[[Any, float], list[Effect]]] = {
            msg.Beat: self._on_beat,
            msg.Lease: self._on_lease,
            msg.Acknowledged: self._on_acknowledged,
            Tick: self._on_tick,
            StandbyLost: self._on_standby_lost,
            Claimed: self._on_claimed,
            Consulted: self._on_consulted,
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
    def awaits_acknowledgment(self) -> bool:
        """Whether something is held back until the standbys have seen what led to it."""
        return any(number > self._acknowledged for number, _ in self._held)

    @property
    def entitled_until(self) -> float:
        """When the first of its own leases, given by the standbys, is over: from then on it gives none."""
        return min(self._entitlements.values(), default=float("inf"))

    @property
    def lowest_number(self) -> int:
        """The lowest number of a standby that may take over, or the next one's where there is none."""
        return min(self.standbys, default=self.next_number)

    def is_waiting(self, worker: str) -> bool:
        """Whether a gradient worker has nothing to do or to say until it is released."""
        member = self.coordinator.state.roster.by_name.get(worker)
        return member is not None and not member.busy and not self.coordinator.takeover.awaited_shards

    @property
    def _acknowledged(self) -> int:
        return min(self.standbys.values(), default=self.handled)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        if self.replaced:
            return []
        if isinstance(event, msg.Refused) and event.term > self.term:
            return self._step_down(f"a coordinator of term {event.term} has taken over")
        own = self._own.get(type(event))
        return own(event, now) if own is not None else self._decide(event, now)

    def _decide(self, event: Any, now: float) -> list[Effect]:
        decided = self.coordinator.handle(event, now)  # where this raises, nothing was handled that standbys wait for
        self.handled += 1
        effects = self._let_through(decided)
        if self.standbys:
            effects.insert(0, Send(STANDBY, msg.LogEntry(self.term, self.handled, now, event)))
        return effects + self._appoint()

    # --- what must be witnessed ---

    def _let_through(self, effects: list[Effect]) -> list[Effect]:
        """Return what happens at once; the rest is held back until it is witnessed."""
        if not self.standbys and not self._consults:
            return effects
        irrevocable = [effect for effect in effects if _must_be_acknowledged(effect)]
        consults = [effect for effect in irrevocable if self._leaves_alone(effect)] if self._consults else []
        if not self.standbys and not consults:
            return effects
        acknowledged = self._acknowledged
        first = next((number for number, _ in self._held if number > acknowledged), self.handled)
        far_behind = first <= self.handled - MOST_BEHIND
        far_behind = far_behind or self.handled - acknowledged > MOST_BEHIND
        if not irrevocable and not far_behind:
            return effects
        through: list[Effect] = []
        for effect in effects:
            awaited = self.handled if self.standbys and _must_be_acknowledged(effect) else 0
            if far_behind and not awaited:
                awaited = self.handled - MOST_BEHIND
            if awaited or effect in consults:
                self._held.append((awaited, effect))
            else:
                through.append(effect)
        if consults:
            self._consulting = self.handled
            through.append(Consult(self.handled))
        return through

    def _leaves_alone(self, effect: Effect) -> bool:
        """Whether a server goes on without any replica from here on, as none must on a side that is cut off."""
        if not isinstance(effect, Send) or not isinstance(effect.message, msg.Exclude):
            return False
        return any(one.server == effect.to.name and not one.in_sync for one in self.coordinator.state.shards)

    def _on_acknowledged(self, message: msg.Acknowledged, now: float) -> list[Effect]:
        if message.standby not in self.standbys:
            return []
        self.standbys[message.standby] = max(self.standbys[message.standby], message.number)
        return self._release(now)

    def _on_consulted(self, event: Consulted, now: float) -> list[Effect]:
        if event.number == self._consulting:  # what was lost since is asked about anew
            self._consulting = 0
        return self._release(now)

    def _release(self, now: float) -> list[Effect]:
        """Return what has been held back and may happen now: nothing while another may have taken over."""
        if self._grants is not None and now > self.entitled_until:
            return []  # it may have been stopped since it asked for a witness, and hear only now of what was seen then
        released: list[tuple[int, Effect]] = []
        kept: list[tuple[int, Effect]] = []
        for number, effect in self._held:
            waits = number > self._acknowledged or (self._consulting and self._leaves_alone(effect))
            (kept if waits else released).append((number, effect))
        self._held = deque(kept)
        return [effect for _, effect in released]

    # --- the standbys ---

    def _appoint(self) -> list[Effect]:
        if len(self._appointed) >= self._appoints or self.over or self.coordinator.takeover.awaited_shards:
            return []
        appointed: list[Effect] = []
        while len(self._appointed) < self._appoints:
            self._appointed.add(self.next_number)
            appointed.append(Appoint(self.next_number))
            self.next_number += 1
        return appointed

    def enlist(self, number: int, now: float) -> tuple[Coordinator, int]:
        """Return what the standby of that number begins with: a coordinator in this one's state, and its events so far.

        From now on, what must be witnessed waits for it.
        """
        self.standbys[number] = self.handled
        self._appointed.add(number)
        if self._grants is not None:
            self._grants.watch(_name(number), now)
            self._heard[number] = now
            self._entitlements[number] = now + self._grants.first_s
        return deepcopy(self.coordinator), self.handled

    def without_standby(self, number: int) -> None:
        """Count a standby as not made: another is appointed when something has changed."""
        self._appointed.discard(number)

    def _on_standby_lost(self, event: StandbyLost, now: float) -> list[Effect]:
        if event.number not in self.standbys:
            return []
        if self._grants is not None:
            self._grants.forget(_name(event.number))
        return [Claim(event.number)]

    def _on_claimed(self, event: Claimed, now: float) -> list[Effect]:
        if event.number not in self.standbys:
            return []
        if not event.granted:
            return self._step_down(f"the standby of term {event.number} has taken over")
        del self.standbys[event.number]
        self._appointed.discard(event.number)
        self._entitlements.pop(event.number, None)
        self._heard.pop(event.number, None)
        self._limit_leases()
        return self._release(now) + self._appoint()

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
        number = lease.term
        if self._grants is not None and number in self.standbys:
            self._grants.renew(_name(number), now)
            until = entitlement(lease.sent_at, lease.seconds)
            self._entitlements[number] = max(self._entitlements[number], until)
            self._heard[number] = max(self._heard[number], lease.sent_at)
            self._limit_leases()
        return self._release(now)

    def _limit_leases(self) -> None:
        """Let no lease be longer than every standby has heard of: it waits so long for the end of one."""
        if self._grants is None:
            return
        if not self.standbys:
            self._promised.clear()
            self._grants.ceiling_s = float("inf")
            return
        known = min(self._heard.values())
        self._promised = {at: longest_s for at, longest_s in self._promised.items() if at >= known}
        self._grants.ceiling_s = min(self._promised.values(), default=self._grants.ceiling_s)

    def beat(self, now: float) -> msg.Beat:
        """Return what asks the standbys for leases, and promises how long those given to copies are at most."""
        longest_s = 0.0
        if self._grants is not None:
            # A longer one counts when the standbys have heard of it, a shorter one at once.
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
        if self.standbys:
            effects.append(Send(STANDBY, self.beat(now)))
        for name, silence_s in self._grants.expire(now, self._irreplaceable(self._grants, now)):
            reason = f"silent for {silence_s:.2f} s"
            standby = next((one for one in self.standbys if _name(one) == name), None)
            if standby is not None:
                effects += self._on_standby_lost(StandbyLost(standby, reason), now)
            elif name in copies:
                effects += self._decide(CopyLost(name, name, reason, silence_s), now)
        return effects

    def _copies(self) -> list[str]:
        state = self.coordinator.state
        if state.plan.protection is not None and state.plan.protection.cold:
            return [one.server for one in state.shards if not one.asleep]  # what is in the store cannot fall silent
        return [name for one in state.shards for name in one.copies]

    def _irreplaceable(self, grants: Grants, now: float) -> set[str]:
        # Where a shard's server and all that could be promoted are silent, the run would be over without them: the
        # first to be heard shows who is only slow, or was stopped for a while.
        silent: set[str] = set()
        for one in self.coordinator.state.shards:
            able = {one.server, *one.in_sync}
            if all(grants.is_over(name, now) for name in able):
                silent |= able
        return silent


def _name(number: int) -> str:
    return f"standby-{number}"


def _must_be_acknowledged(effect: Effect) -> bool:
    if isinstance(effect, Send):
        message = effect.message
        if isinstance(message, msg.Commit):
            return not message.contributions
        return type(message) in _IRREVOCABLE_ORDERS
    return type(effect) in _IRREVOCABLE
