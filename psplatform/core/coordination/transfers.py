"""Which of the gradients that workers offer are sent, and when."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from psplatform.core import reasons
from psplatform.core.addresses import host_of
from psplatform.core.coordination.admission import Admission
from psplatform.core.coordination.roster import Member
from psplatform.core.coordination.state import TRANSFERS, State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Role, Send, SetTimer
from psplatform.core.reasons import Reason
from psplatform.core.transfers import Grant, Offer, TransferPlanner, require_plannable
from psplatform.errors import ConfigurationError


@dataclass(eq=False)
class _Offered:
    """A gradient that was offered at a time.

    Once it is granted, `begin` is when it is to be sent, and `term` that of the coordinator which granted it.
    """

    message: msg.Offer
    at: float
    begin: float = math.inf
    term: int = 0

    @property
    def announce(self) -> msg.Announce:
        return self.message.announce


class Transfers:
    """Hands offers to the planner, and its answers to workers.

    An offer whose way is idle is granted at once; the others wait for the next tick, at which all that wait are planned
    together.  What was granted is expected until it is announced.  Without a planner, every offer is granted at once.

    Nothing here has to survive a coordinator: a worker whose gradient is neither sent nor dropped offers it again.
    """

    def __init__(self, state: State, admission: Admission, planner: TransferPlanner | None) -> None:
        if planner is not None:
            _check(planner, state)
        self._state, self._admission, self._planner = state, admission, planner
        self._waiting: dict[int, _Offered] = {}
        self._granted: dict[int, _Offered] = {}
        self._keys: dict[str, int] = {}
        self._servers = [one.server for one in state.shards]
        self._number = 0
        self._unsent: list[tuple[float, int]] = []
        """What is granted and begins later, the soonest first."""
        self._idle_at = math.inf
        """When a way is expected to be idle that an offer waits for."""
        self._tick_at = math.inf
        self._alarm_at = math.inf

    @property
    def waiting(self) -> int:
        """Number of offers that are neither granted nor dropped."""
        return len(self._waiting)

    @property
    def granted(self) -> int:
        """Number of gradients that are expected."""
        return len(self._granted)

    def on_offer(self, message: msg.Offer) -> None:
        """Grant an offer, let it wait, or have it dropped.

        One that is repeated is planned once; it is answered again if it was answered.
        """
        state, announce = self._state, message.announce
        member = state.roster.by_name.get(announce.member)
        if member is None:
            state.effects.append(Send(Role.member(announce.member), msg.Stop(state.term, msg.JOIN_AGAIN)))
            return
        self._admission.catch_up(member, announce)
        if announce.sequence in member.interrupted:
            return  # it was told to abort, and confirms that
        granted = self._find(announce, self._granted)
        if not self._is_open(announce):
            self._tell(announce, msg.Drop(state.term, announce.sequence))
        elif self._planner is None or state.stopping:
            self._tell(announce, msg.Route(state.term, announce.sequence))
        elif granted is not None:
            self._route(self._granted[granted])
        elif self._find(announce, self._waiting) is None:
            self._take(message, self._planner)

    def on_announce(self, message: msg.Announce) -> None:
        """Expect a gradient no longer that has arrived, and learn how long it took."""
        state, planner = self._state, self._planner
        key = self._find(message, self._granted)
        if key is not None and planner is not None:
            offered = self._granted.pop(key)
            if offered.term == state.term:
                planner.arrive(key, offered.message.host, state.now - message.push_s, state.now)
            else:  # it may have been kept for long, until the takeover was over
                planner.settle(key)
        key = self._find(message, self._waiting)
        if key is not None:  # granted by a coordinator that is gone
            del self._waiting[key]

    def forget_closed(self) -> None:
        """Forget the gradients of workers that are gone, or that were told to abort."""
        for known in (self._waiting, self._granted):
            for key in [key for key, offered in known.items() if not self._is_open(offered.announce)]:
                self._forget(key)
        roster = self._state.roster.by_name
        self._keys = {name: key for name, key in self._keys.items() if name in roster}

    def follow_servers(self) -> None:
        """Tell the planner where a shard is served now that has another server than before, as far as that is known."""
        for one in self._state.shards:
            if one.server == self._servers[one.shard]:
                continue
            self._servers[one.shard] = one.server
            process = self._state.processes.get(one.server)
            if self._planner is not None and process is not None:
                self._planner.serve(one.shard, host_of(process), self._state.now)

    def ask_again(self) -> None:
        """Ask for the offers that wait, the oldest first, until one finds its way busy: so do those behind it.

        To be called whenever a way may have become idle: when one is expected to be, and when something has arrived or
        is expected no longer.
        """
        planner = self._planner
        if planner is None or self._state.stopping or not self._waiting:
            return
        self._idle_at = math.inf
        for key in list(self._waiting):
            if self._is_open(self._waiting[key].announce):
                self._ask(key, planner)
            if self._idle_at < math.inf:
                break
        self._set_alarm()

    def on_timer(self) -> None:
        """Do what is due: have gradients sent, ask for offers again, plan anew."""
        state, planner = self._state, self._planner
        self._alarm_at = math.inf
        if state.stopping or planner is None:
            return
        while self._unsent and self._unsent[0][0] <= state.now:
            _, key = heappop(self._unsent)
            if key in self._granted:
                self._route(self._granted[key])
        if self._tick_at <= state.now:
            self._plan(planner)
        if self._idle_at <= state.now:
            self._idle_at = math.inf
            self.ask_again()
        self._set_alarm()

    def _take(self, message: msg.Offer, planner: TransferPlanner) -> None:
        name = message.announce.member
        self._forget(self._keys.get(name, 0))
        self._number += 1
        self._keys[name] = self._number
        self._waiting[self._number] = _Offered(message, self._state.now)
        self._ask(self._number, planner)
        if self._waiting and math.isinf(self._tick_at):
            self._tick_at = self._state.now + planner.tick_s
        self._set_alarm()

    def _ask(self, key: int, planner: TransferPlanner) -> None:
        """Have an offer that waits granted at once, or note when its way is idle."""
        others = (self._as_offer(other) for other in self._open() if other != key)
        answer = planner.grant_at_once(self._as_offer(key), self._state.now, others)
        if isinstance(answer, Grant):
            self._grant(answer)
        elif answer > self._state.now:  # else it would be asked for ever
            self._idle_at = min(self._idle_at, answer)

    def _plan(self, planner: TransferPlanner) -> None:
        self.forget_closed()
        plan = planner.plan([self._as_offer(key) for key in self._waiting], self._state.now)
        for grant in plan.granted:
            self._grant(grant)
        for key in plan.dropped:
            self._drop(self._waiting.pop(key))
        self._tick_at = self._state.now + planner.tick_s if self._waiting else math.inf

    def _open(self) -> Iterator[int]:
        return (key for key, offered in self._waiting.items() if self._is_open(offered.announce))

    def _forget(self, key: int) -> None:
        self._waiting.pop(key, None)
        if self._granted.pop(key, None) is not None and self._planner is not None:
            self._planner.settle(key)

    def _grant(self, grant: Grant) -> None:
        for key, begin in zip(grant.keys, grant.begins, strict=True):
            self._granted[key] = offered = self._waiting.pop(key)
            offered.begin, offered.term = begin, self._state.term
            if begin > self._state.now:
                heappush(self._unsent, (begin, key))
            self._route(offered)

    def _route(self, offered: _Offered) -> None:
        """Have a gradient sent, unless it is too early for that."""
        if offered.begin <= self._state.now and self._is_open(offered.announce):
            self._tell(offered.announce, msg.Route(self._state.term, offered.announce.sequence))

    def _drop(self, offered: _Offered) -> None:
        state, announce = self._state, offered.announce
        member = self._member_of(announce)
        figures = f"computed on version {announce.label.version}, the model is at {state.version}"
        latest = self._admission.latest(member, announce)
        until = "" if latest is None else f", it could be applied up to version {latest}"
        self._tell(announce, msg.Drop(state.term, announce.sequence))
        waited = replace(announce, wait_s=announce.wait_s + state.now - offered.at)
        self._admission.give_up(member, waited, Reason(reasons.NOT_SENT, figures + until))

    def _tell(self, announce: msg.Announce, message: msg.Route | msg.Drop) -> None:
        self._state.effects.append(Send(Role.member(announce.member), message))

    def _set_alarm(self) -> None:
        at = min(self._tick_at, self._idle_at, self._unsent[0][0] if self._unsent else math.inf)
        if at < self._alarm_at:
            self._alarm_at = at
            self._state.effects.append(SetTimer(TRANSFERS, at))

    def _as_offer(self, key: int) -> Offer:
        """Return what the planner must know of an offer that waits, whose worker is there."""
        message = self._waiting[key].message
        latest = self._admission.latest(self._member_of(message.announce), message.announce)
        deadline = None if latest is None else latest - self._state.version + 1
        return Offer(key, message.host, deadline)

    def _find(self, announce: msg.Announce, known: dict[int, _Offered]) -> int | None:
        key = self._keys.get(announce.member, 0)
        return key if key in known and known[key].announce.sequence == announce.sequence else None

    def _is_open(self, announce: msg.Announce) -> bool:
        """Whether its worker is live, busy with that gradient, and not told to abort it."""
        member = self._state.roster.by_name.get(announce.member)
        if member is None or not member.busy:
            return False
        return member.sequence == announce.sequence and announce.sequence not in member.interrupted

    def _member_of(self, announce: msg.Announce) -> Member:
        return self._state.roster.by_name[announce.member]


def _check(planner: TransferPlanner, state: State) -> None:
    require_plannable(state.traits.scope)
    if planner.sums:
        raise ConfigurationError("runs cannot sum on the way yet; give the planner no aggregators", field="network")
