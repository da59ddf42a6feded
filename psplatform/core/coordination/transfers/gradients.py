"""Which of the gradients that workers offer are sent, when, and by which way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from psplatform.core import reasons
from psplatform.core.coordination.members.hosts import Hosts
from psplatform.core.coordination.order.admission import Admission
from psplatform.core.coordination.state import TRANSFERS, State
from psplatform.core.coordination.transfers.bundles import Bundles, Expected
from psplatform.core.coordination.transfers.offers import Offered, Offers
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send, SetTimer
from psplatform.core.protocol.names import Role
from psplatform.core.reasons import Reason
from psplatform.core.transfers import Grant, Offer, TransferPlanner, require_plannable


class Departures:
    """Has the gradients sent that were granted, each when it is to be."""

    def __init__(self, state: State, offers: Offers) -> None:
        self._state, self._offers = state, offers
        self._unsent: list[tuple[float, int]] = []
        """What is granted and begins later, the soonest first."""

    @property
    def are_open(self) -> bool:
        """Whether anything is to be sent later."""
        return bool(self._unsent)

    @property
    def next_at(self) -> float:
        """When the next is to be sent; infinity where there is none."""
        return self._unsent[0][0] if self._unsent else math.inf

    def add(self, key: int) -> None:
        """Have a gradient sent that was granted, now or later."""
        offered = self._offers.granted[key]
        if offered.begin > self._state.now:
            heappush(self._unsent, (offered.begin, key))
        self.send(offered)

    def bring_forward(self, begins: Mapping[int, tuple[float, float]]) -> None:
        """Have gradients sent sooner, given by their keys, each with its new begin and end."""
        for key, (begin, end) in begins.items():
            offered = self._offers.granted.get(key)
            if offered is not None and begin < offered.begin:
                offered.begin, offered.end = begin, min(end, offered.end)
                heappush(self._unsent, (begin, key))
        self.send_begun()

    def send_begun(self) -> None:
        """Have the gradients sent that are to be sent by now."""
        granted = self._offers.granted
        while self._unsent and self._unsent[0][0] <= self._state.now:
            begin, key = heappop(self._unsent)
            if key in granted and granted[key].begin == begin:  # else it was moved to the front
                self.send(granted[key])

    def send(self, offered: Offered) -> None:
        """Have a gradient sent, unless it is too early for that; one that is asked for again, again."""
        state, announce = self._state, offered.announce
        if offered.begin <= state.now and self._offers.is_open(announce):
            route = msg.Route(state.term, announce.sequence, offered.number, offered.aggregator)
            state.effects.append(Send(Role.member(announce.member), route))


class Transfers:
    """Hands offers to the planner, and its answers to workers.

    An offer whose way is idle is granted at once; the others wait for the next tick, at which all that wait are planned
    together.  What was granted is expected until it is announced.  Without a planner, every offer is granted at once.

    Some are summed on their way by the process of a worker.  A sum counts as the announcement of all that is in it.
    One that does not come, because whoever was to give a part or to sum is lost or silent, or that cannot be used as a
    whole, is given up, and what was to be in it is offered again: the next time, it goes by itself.

    Nothing here has to survive a coordinator: a worker whose gradient is neither sent nor dropped offers it again.
    """

    def __init__(
        self, state: State, admission: Admission, hosts: Hosts, offers: Offers, planner: TransferPlanner | None
    ) -> None:
        if planner is not None:
            require_plannable(state.traits, sums=planner.sums)
        self._state, self._admission, self._planner = state, admission, planner
        self._hosts, self._offers = hosts, offers
        self._departures = Departures(state, offers)
        self._bundles = Bundles(state, hosts)
        self._routes = 0
        self._idle_at = math.inf
        """When a way is expected to be idle that an offer waits for."""
        self._tick_at = math.inf
        self._alarm_at = math.inf

    @property
    def aggregator(self) -> str | None:
        """The worker whose process sums the oldest of the bundles that are expected, if there are any."""
        return self._bundles.oldest

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
        self._hosts.heard(announce.member, message.host)
        granted = self._offers.find(announce, self._offers.granted)
        if not self._offers.is_open(announce):
            self._tell(announce, msg.Drop(state.term, announce.sequence))
        elif self._planner is None or state.stopping:
            self._tell(announce, msg.Route(state.term, announce.sequence))
        elif granted is not None:
            self._departures.send(self._offers.granted[granted])
        elif self._offers.find(announce, self._offers.waiting) is None:
            self._take(message, self._planner)

    def on_announce(self, message: msg.Announce) -> None:
        """Expect a gradient no longer that has arrived, and learn how long it took."""
        state, planner, offers = self._state, self._planner, self._offers
        key = offers.find(message, offers.granted)
        if key is not None and offers.granted[key].aggregator:
            # Sent straight, as a coordinator had it that is gone: it was not to be summed any more.
            self._give_up(self._bundles.take_broken({key}))
            key = None
        if key is not None and planner is not None:
            offered = offers.granted.pop(key)
            if offered.term == state.term:
                planner.arrive(key, offered.message.host, state.now - message.push_s, state.now)
                if message.member in state.roster.by_name:
                    self._log([offered])
            else:  # it may have been kept for long, until the takeover was over
                planner.settle(key)
        key = offers.find(message, offers.waiting)
        if key is not None:  # granted by a coordinator that is gone
            del offers.waiting[key]

    def on_bundled(self, message: msg.Bundled) -> None:
        """Have the gradients of a sum judged that is at the servers."""
        bundle = message.bundle
        self._hosts.heard(bundle.aggregator)
        expected = self._bundles.take(bundle)
        if expected is None or self._planner is None:
            self._bundles.tell_oldest(bundle.aggregator)
            return
        offered = [self._offers.granted[key] for key in expected.keys]
        if not all(self._offers.is_open(one.announce) for one in offered):
            self._give_up([expected])
            self._bundles.tell_oldest(bundle.aggregator)
            return
        self._bundles.note_come(bundle)
        now, to = self._state.now, self._hosts.of(bundle.aggregator)
        for one, age_s in zip(offered, message.ages_s, strict=False):
            self._planner.seen(one.message.host, to, one.begin, max(one.begin, now - age_s))
        self._planner.arrive(expected.keys[0], to, now - message.push_s, now)
        self._log(offered, bundle.aggregator)
        again = self._admission.on_bundle([one.as_sent(self._state.now) for one in offered], bundle)
        for key in expected.keys:
            one = self._offers.granted.pop(key)
            if self._offers.member_of(one).slot in again:
                self._offer_alone(key, one)
        self._bundles.note_shown()  # of one that is not used, at once
        self._ensure_tick()

    def note_shown(self) -> None:
        """Let aggregators forget the sums that every shard shows by now."""
        self._bundles.note_shown()

    def on_taken_over(self) -> None:
        """Forget what another coordinator had summed, of which this one is not told: its workers offer it again."""
        for expected in self._bundles.take_all():
            for key in expected.keys:
                if key in self._offers.granted:
                    self._offers.waiting[key] = self._offers.granted.pop(key)
                    if self._planner is not None:
                        self._planner.settle(key)

    def resume(self) -> None:
        """Go on after a takeover, with what is still open."""
        if self._planner is not None and self._planner.sums:
            self._bundles.resume()
        self.forget_closed()
        self.ask_again()
        self._ensure_tick()

    def forget_closed(self) -> None:
        """Forget the gradients of workers that are gone, or that were told to abort."""
        closed = self._offers.closed()
        self._hosts.forget_the_gone()
        self._give_up(self._bundles.take_broken(closed))
        for key in closed:
            self._forget(key)
        self._offers.forget_the_gone()

    def ask_again(self) -> None:
        """Ask for the offers that wait, the oldest first, until one finds its way busy: so do those behind it.

        To be called whenever a way may have become idle: when one is expected to be, and when something has arrived or
        is expected no longer.
        """
        planner = self._planner
        if planner is None or self._state.stopping:
            return
        self._send_sooner(planner)
        if not self._offers.waiting:
            return
        self._idle_at = math.inf
        for key in list(self._offers.waiting):
            if self._offers.is_open(self._offers.waiting[key].announce):
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
        self._departures.send_begun()
        overdue = self._bundles.take_overdue()
        self._give_up(overdue)
        if overdue:
            self._send_sooner(planner)
        if self._tick_at <= state.now:
            self._plan(planner)
        if self._idle_at <= state.now:
            self._idle_at = math.inf
            self.ask_again()
        self._set_alarm()

    def _send_sooner(self, planner: TransferPlanner) -> None:
        """Have gradients sent that were to wait for what has arrived by now."""
        if self._departures.are_open:
            self._departures.bring_forward(planner.begins(self._state.now))
            self._set_alarm()

    def _take(self, message: msg.Offer, planner: TransferPlanner) -> None:
        before = self._offers.key_of(message.announce.member)
        self._give_up(self._bundles.take_broken({before}))
        self._forget(before)
        self._ask(self._offers.add(message, self._state.now), planner)
        self._ensure_tick()

    def _ensure_tick(self) -> None:
        """Plan at the next tick, if anything waits for that."""
        if self._offers.waiting and math.isinf(self._tick_at) and self._planner is not None:
            self._tick_at = self._state.now + self._planner.tick_s
        self._set_alarm()

    def _give_up(self, expected: Iterable[Expected]) -> None:
        """Let what was to be summed be offered again."""
        for one in expected:
            for key in one.keys:
                if (offered := self._offers.granted.pop(key, None)) is not None:
                    self._offer_alone(key, offered)
            self._ensure_tick()

    def _offer_alone(self, key: int, offered: Offered) -> None:
        offered.alone = True
        self._offers.waiting[key] = offered
        if self._planner is not None:
            self._planner.settle(key)

    def _ask(self, key: int, planner: TransferPlanner) -> None:
        """Have an offer that waits granted at once, or note when its way is idle."""
        others = (
            self._as_offer(other)
            for other, offered in self._offers.waiting.items()
            if self._offers.is_open(offered.announce) and other != key
        )
        answer = planner.grant_at_once(self._as_offer(key), self._state.now, others)
        if isinstance(answer, Grant):
            self._grant(answer)
        elif answer > self._state.now:  # else it would be asked for ever
            self._idle_at = min(self._idle_at, answer)

    def _plan(self, planner: TransferPlanner) -> None:
        self.forget_closed()
        able = self._hosts.helpers()
        plan = planner.plan([self._as_offer(key) for key in self._offers.waiting], self._state.now, able)
        for grant in plan.granted:
            self._grant(grant)
        for key in plan.dropped:
            self._drop(self._offers.waiting.pop(key))
        self._tick_at = self._state.now + planner.tick_s if self._offers.waiting else math.inf

    def _forget(self, key: int) -> None:
        self._offers.waiting.pop(key, None)
        if self._offers.granted.pop(key, None) is not None and self._planner is not None:
            self._planner.settle(key)

    def _grant(self, grant: Grant) -> None:
        term = self._state.term
        self._routes += 1
        aggregator = self._aggregator_of(grant)
        if aggregator:
            contributions = [(key, self._offers.contribution_of(key)) for key in grant.keys]
            contributions.sort(key=lambda one: one[1].slot)
            self._bundles.expect(msg.Bundle(aggregator, term, self._routes), contributions, grant.end)
        for key, begin in zip(grant.keys, grant.begins, strict=True):
            self._offers.granted[key] = offered = self._offers.waiting.pop(key)
            offered.begin, offered.end, offered.term = begin, grant.end, term
            offered.number, offered.aggregator = self._routes, aggregator
            self._departures.add(key)

    def _aggregator_of(self, grant: Grant) -> str:
        """Return the worker whose process sums what is granted; empty where all of it goes straight."""
        if grant.aggregator is None or any(self._offers.waiting[key].alone for key in grant.keys):
            return ""
        return self._hosts.helpers().get(grant.aggregator, "")

    def _log(self, offered: Sequence[Offered], aggregator: str = "") -> None:
        """Log that a vector has come to the servers, made of these gradients, and how long that was to take."""
        state, begin = self._state, min(one.begin for one in offered)
        end = min(one.end for one in offered)  # as it was expected last
        state.log(
            "transfer",
            slots=[self._offers.member_of(one).slot for one in offered],
            sequences=[one.announce.sequence for one in offered],
            took_s=state.now - begin,
            planned_s=max(0.0, end - begin) if end < math.inf else None,
            host=self._hosts.of(aggregator) if aggregator else offered[0].message.host,
            hosts=[one.message.host for one in offered],
        )

    def _drop(self, offered: Offered) -> None:
        state, announce = self._state, offered.announce
        member = self._offers.member_of(offered)
        figures = f"computed on version {announce.label.version}, the model is at {state.version}"
        latest = self._admission.latest(member, announce)
        until = "" if latest is None else f", it could be applied up to version {latest}"
        self._tell(announce, msg.Drop(state.term, announce.sequence))
        waited = replace(announce, wait_s=announce.wait_s + state.now - offered.at)
        self._admission.give_up(member, waited, Reason(reasons.NOT_SENT, figures + until))

    def _tell(self, announce: msg.Announce, message: msg.Route | msg.Drop) -> None:
        self._state.effects.append(Send(Role.member(announce.member), message))

    def _set_alarm(self) -> None:
        at = min(self._tick_at, self._idle_at, self._departures.next_at, self._bundles.next_due)
        if at < self._alarm_at:
            self._alarm_at = at
            self._state.effects.append(SetTimer(TRANSFERS, at))

    def _as_offer(self, key: int) -> Offer:
        """Return what the planner must know of an offer that waits, whose worker is there."""
        offered = self._offers.waiting[key]
        latest = self._admission.latest(self._offers.member_of(offered), offered.announce)
        deadline = None if latest is None else latest - self._state.version + 1
        return Offer(key, offered.message.host, deadline, offered.alone)
