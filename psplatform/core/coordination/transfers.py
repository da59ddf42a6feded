"""Which of the gradients that workers offer are sent, and when."""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Final

from psplatform.core import reasons
from psplatform.core.coordination.admission import Admission
from psplatform.core.coordination.roster import Member
from psplatform.core.coordination.state import TRANSFERS, State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Role, Send, SetTimer
from psplatform.core.reasons import Reason
from psplatform.core.transfers import Grant, Offer, TransferPlanner

_TOO_LATE: Final = "it would have come later than the policy applies it"


class Transfers:
    """Hands offers to the planner, and its answers to workers.

    An offer whose way is idle is granted at once; the others wait for the next tick, at which all that wait are planned
    together.  What was granted is expected until it is announced.  Without a planner, every offer is granted at once.

    Nothing here has to survive a coordinator: a worker whose gradient is neither sent nor dropped offers it again.
    """

    def __init__(self, state: State, admission: Admission, planner: TransferPlanner | None) -> None:
        self._state, self._admission, self._planner = state, admission, planner
        self._waiting: dict[int, msg.Offer] = {}
        self._granted: dict[int, msg.Offer] = {}
        self._keys: dict[str, int] = {}
        self._number = 0
        # When to look at which offer: to ask for it again, or, once it is granted, to have it sent.
        self._agenda: list[tuple[float, int]] = []
        self._tick_at = math.inf
        self._alarm_at = math.inf

    @property
    def waiting(self) -> int:
        """Number of offers that are neither granted nor dropped."""
        return len(self._waiting)

    def on_offer(self, message: msg.Offer) -> None:
        """Grant an offer, let it wait, or have it dropped; a repeated one gets the same answer."""
        state, announce = self._state, message.announce
        member = state.roster.by_name.get(announce.member)
        if member is None:
            state.effects.append(Send(Role.member(announce.member), msg.Stop(state.term, msg.JOIN_AGAIN)))
            return
        self._admission.catch_up(member, announce)
        if announce.sequence in member.interrupted:
            return  # it was told to abort, and confirms that
        if not self._is_open(message):
            self._tell(message, msg.Drop(state.term, announce.sequence))
        elif self._planner is None or state.stopping or self._find(announce, self._granted) is not None:
            self._tell(message, msg.Route(state.term, announce.sequence))
        elif self._find(announce, self._waiting) is None:
            self._take(message)

    def on_announce(self, message: msg.Announce) -> None:
        """Expect a gradient no longer that has arrived, and learn how long it took."""
        now = self._state.now
        key = self._find(message, self._granted)
        if key is not None and self._planner is not None:
            del self._granted[key]
            self._planner.arrive(key, now - message.push_s, now)
        key = self._find(message, self._waiting)
        if key is not None:  # granted by a coordinator that is gone
            del self._waiting[key]

    def on_timer(self) -> None:
        """Do what is due: have gradients sent, ask for offers again, plan anew."""
        state, self._alarm_at = self._state, math.inf
        if state.stopping or self._planner is None:
            return
        while self._agenda and self._agenda[0][0] <= state.now:
            _, key = heappop(self._agenda)
            if key in self._granted:
                self._route(self._granted[key])
            else:
                self._ask(key, self._planner)
        if self._tick_at <= state.now:
            self._plan(self._planner)
        self._set_alarm()

    def _take(self, message: msg.Offer) -> None:
        planner = self._planner
        if planner is None:
            return
        self._number += 1
        self._keys[message.announce.member] = self._number
        self._waiting[self._number] = message
        self._ask(self._number, planner)
        if self._waiting and math.isinf(self._tick_at):
            self._tick_at = self._state.now + planner.tick_s
        self._set_alarm()

    def _ask(self, key: int, planner: TransferPlanner) -> None:
        """Have an offer that waits granted at once, or look at it again when its way is idle."""
        if key not in self._waiting or not self._is_open(self._waiting[key]):
            return
        waiting = [self._as_offer(one) for one in self._waiting if self._is_open(self._waiting[one])]
        answer = planner.grant_at_once(self._as_offer(key), self._state.now, waiting)
        if isinstance(answer, Grant):
            self._grant(answer)
        elif self._state.now < answer < math.inf:
            heappush(self._agenda, (answer, key))

    def _plan(self, planner: TransferPlanner) -> None:
        self._forget_closed(planner)
        plan = planner.plan([self._as_offer(key) for key in self._waiting], self._state.now)
        for grant in plan.granted:
            self._grant(grant)
        for key in plan.dropped:
            self._drop(self._waiting.pop(key))
        self._tick_at = self._state.now + planner.tick_s if self._waiting else math.inf

    def _forget_closed(self, planner: TransferPlanner) -> None:
        """Forget the gradients of workers that are gone or were told to abort."""
        for key in [key for key, one in self._granted.items() if not self._is_open(one)]:
            del self._granted[key]
            planner.settle(key)
        self._waiting = {key: one for key, one in self._waiting.items() if self._is_open(one)}

    def _grant(self, grant: Grant) -> None:
        for key, begin in zip(grant.keys, grant.begins, strict=True):
            self._granted[key] = offer = self._waiting.pop(key)
            if begin <= self._state.now:
                self._route(offer)
            else:
                heappush(self._agenda, (begin, key))

    def _route(self, offer: msg.Offer) -> None:
        if self._is_open(offer):
            self._tell(offer, msg.Route(self._state.term, offer.announce.sequence))

    def _drop(self, offer: msg.Offer) -> None:
        announce = offer.announce
        self._tell(offer, msg.Drop(self._state.term, announce.sequence))
        self._admission.give_up(self._member_of(offer), announce, Reason(reasons.NOT_SENT, _TOO_LATE))

    def _tell(self, offer: msg.Offer, message: msg.Route | msg.Drop) -> None:
        self._state.effects.append(Send(Role.member(offer.announce.member), message))

    def _set_alarm(self) -> None:
        at = min(self._tick_at, self._agenda[0][0] if self._agenda else math.inf)
        if at < self._alarm_at:
            self._alarm_at = at
            self._state.effects.append(SetTimer(TRANSFERS, at))

    def _as_offer(self, key: int) -> Offer:
        message = self._waiting[key]
        latest = self._admission.latest(self._member_of(message), message.announce)
        deadline = None if latest is None else latest - self._state.version + 1
        return Offer(key, message.host, deadline)

    def _find(self, announce: msg.Announce, among: dict[int, msg.Offer]) -> int | None:
        key = self._keys.get(announce.member, 0)
        return key if key in among and among[key].announce.sequence == announce.sequence else None

    def _is_open(self, offer: msg.Offer) -> bool:
        """Whether nobody has decided yet what becomes of a gradient, whose worker is still there."""
        announce = offer.announce
        member = self._state.roster.by_name.get(announce.member)
        at_hand = member is not None and member.busy and member.sequence == announce.sequence
        return at_hand and member is not None and announce.sequence not in member.interrupted

    def _member_of(self, offer: msg.Offer) -> Member:
        return self._state.roster.by_name[offer.announce.member]
