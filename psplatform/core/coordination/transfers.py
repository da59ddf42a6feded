"""Which of the gradients that workers offer are sent, when, and by which way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from psplatform.core import reasons
from psplatform.core.addresses import host_of
from psplatform.core.coordination.admission import Admission
from psplatform.core.coordination.bundles import Bundles, Expected
from psplatform.core.coordination.hosts import Hosts
from psplatform.core.coordination.roster import Member
from psplatform.core.coordination.state import TRANSFERS, State
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Role, Send, SetTimer
from psplatform.core.reasons import Reason
from psplatform.core.transfers import Grant, Offer, TransferPlanner, require_plannable


@dataclass(eq=False)
class _Offered:
    """A gradient that was offered at a time.

    Once it is granted, `begin` is when it is to be sent, by the route `number` of the coordinator of `term`, and to
    whom, if not to the servers; `end` is when it, or the sum it is in, is expected there.  With `alone`, it was to be
    summed with others once, and that came to nothing.
    """

    message: msg.Offer
    at: float
    begin: float = math.inf
    end: float = math.inf
    term: int = 0
    number: int = 0
    aggregator: str = ""
    alone: bool = False

    @property
    def announce(self) -> msg.Announce:
        return self.message.announce


class Transfers:
    """Hands offers to the planner, and its answers to workers.

    An offer whose way is idle is granted at once; the others wait for the next tick, at which all that wait are planned
    together.  What was granted is expected until it is announced.  Without a planner, every offer is granted at once.

    Some are summed on their way by the process of a worker.  A sum counts as the announcement of all that is in it.
    One that does not come, because whoever was to give a part or to sum is lost or silent, or that cannot be used as a
    whole, is given up, and what was to be in it is offered again: the next time, it goes by itself.

    Nothing here has to survive a coordinator: a worker whose gradient is neither sent nor dropped offers it again.
    """

    def __init__(self, state: State, admission: Admission, hosts: Hosts, planner: TransferPlanner | None) -> None:
        if planner is not None:
            require_plannable(state.traits, sums=planner.sums)
        self._state, self._admission, self._planner = state, admission, planner
        self._waiting: dict[int, _Offered] = {}
        self._granted: dict[int, _Offered] = {}
        self._hosts = hosts
        self._bundles = Bundles(state, hosts)
        self._keys: dict[str, int] = {}
        self._servers = [one.server for one in state.shards]
        self._number = self._routes = 0
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

    @property
    def aggregator(self) -> str | None:
        """The worker whose process sums the oldest of the bundles that are expected, if there are any."""
        return self._bundles.oldest

    def begin(self) -> None:
        """Log on which hosts the servers are."""
        if self._planner is not None:
            self._log_servers(self._planner)

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
        if key is not None and self._granted[key].aggregator:
            # Sent straight, as a coordinator had it that is gone: it was not to be summed any more.
            self._give_up(self._bundles.take_broken({key}))
            key = None
        if key is not None and planner is not None:
            offered = self._granted.pop(key)
            if offered.term == state.term:
                planner.arrive(key, offered.message.host, state.now - message.push_s, state.now)
                if message.member in state.roster.by_name:
                    self._log([offered])
            else:  # it may have been kept for long, until the takeover was over
                planner.settle(key)
        key = self._find(message, self._waiting)
        if key is not None:  # granted by a coordinator that is gone
            del self._waiting[key]

    def on_bundled(self, message: msg.Bundled) -> None:
        """Have the gradients of a sum judged that is at the servers."""
        bundle = message.bundle
        self._hosts.heard(bundle.aggregator)
        expected = self._bundles.take(bundle)
        if expected is None or self._planner is None:
            self._bundles.tell_oldest(bundle.aggregator)
            return
        offered = [self._granted[key] for key in expected.keys]
        if not all(self._is_open(one.announce) for one in offered):
            self._give_up([expected])
            self._bundles.tell_oldest(bundle.aggregator)
            return
        self._bundles.note_come(bundle)
        now, to = self._state.now, self._hosts.of(bundle.aggregator)
        for one, age_s in zip(offered, message.ages_s, strict=False):
            self._planner.seen(one.message.host, to, one.begin, max(one.begin, now - age_s))
        self._planner.arrive(expected.keys[0], to, now - message.push_s, now)
        self._log(offered, bundle.aggregator)
        again = self._admission.on_bundle([self._as_sent(one) for one in offered], bundle)
        for key in expected.keys:
            one = self._granted.pop(key)
            if self._member_of(one.announce).slot in again:
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
                if key in self._granted:
                    self._waiting[key] = self._granted.pop(key)
                    if self._planner is not None:
                        self._planner.settle(key)

    def resume(self) -> None:
        """Go on after a takeover, with what is still open."""
        if self._planner is not None and self._planner.sums:
            self._bundles.resume()
        self.forget_closed()
        self.ask_again()
        self._ensure_tick()

    def announcement_of(self, member: str, sequence: int) -> msg.Announce | None:
        """Return what would be announced of a gradient that was offered and may have been summed with others."""
        key = self._keys.get(member, 0)
        offered = self._granted.get(key) or self._waiting.get(key)
        return offered.announce if offered is not None and offered.announce.sequence == sequence else None

    def forget_closed(self) -> None:
        """Forget the gradients of workers that are gone, or that were told to abort."""
        closed = {
            key
            for known in (self._waiting, self._granted)
            for key, offered in known.items()
            if not self._is_open(offered.announce)
        }
        self._hosts.forget_the_gone()
        self._give_up(self._bundles.take_broken(closed))
        for key in closed:
            self._forget(key)
        roster = self._state.roster.by_name
        self._keys = {name: key for name, key in self._keys.items() if name in roster}

    def follow_servers(self) -> None:
        """Tell the planner where a shard is served now that has another server than before, as far as that is known."""
        moved = False
        for one in self._state.shards:
            if one.server == self._servers[one.shard]:
                continue
            process = self._state.processes.get(one.server)
            if process is None:
                continue
            self._servers[one.shard] = one.server
            if self._planner is not None:
                self._planner.serve(one.shard, host_of(process), self._state.now)
                moved = True
        if moved and self._planner is not None:
            self._log_servers(self._planner)

    def ask_again(self) -> None:
        """Ask for the offers that wait, the oldest first, until one finds its way busy: so do those behind it.

        To be called whenever a way may have become idle: when one is expected to be, and when something has arrived or
        is expected no longer.
        """
        planner = self._planner
        if planner is None or self._state.stopping:
            return
        self._send_sooner(planner)
        if not self._waiting:
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
        self._send_begun()
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
        if not self._unsent:
            return
        for key, (begin, end) in planner.begins(self._state.now).items():
            offered = self._granted.get(key)
            if offered is not None and begin < offered.begin:
                offered.begin, offered.end = begin, min(end, offered.end)
                heappush(self._unsent, (begin, key))
        self._send_begun()
        self._set_alarm()

    def _send_begun(self) -> None:
        """Have the gradients sent that are to be sent by now."""
        while self._unsent and self._unsent[0][0] <= self._state.now:
            begin, key = heappop(self._unsent)
            if key in self._granted and self._granted[key].begin == begin:  # else it was moved to the front
                self._route(self._granted[key])

    def _take(self, message: msg.Offer, planner: TransferPlanner) -> None:
        name = message.announce.member
        before = self._keys.get(name, 0)
        self._give_up(self._bundles.take_broken({before}))
        self._forget(before)
        self._number += 1
        self._keys[name] = self._number
        self._waiting[self._number] = _Offered(message, self._state.now)
        self._ask(self._number, planner)
        self._ensure_tick()

    def _ensure_tick(self) -> None:
        """Plan at the next tick, if anything waits for that."""
        if self._waiting and math.isinf(self._tick_at) and self._planner is not None:
            self._tick_at = self._state.now + self._planner.tick_s
        self._set_alarm()

    def _give_up(self, expected: Iterable[Expected]) -> None:
        """Let what was to be summed be offered again."""
        for one in expected:
            for key in one.keys:
                if (offered := self._granted.pop(key, None)) is not None:
                    self._offer_alone(key, offered)
            self._ensure_tick()

    def _offer_alone(self, key: int, offered: _Offered) -> None:
        offered.alone = True
        self._waiting[key] = offered
        if self._planner is not None:
            self._planner.settle(key)

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
        able = self._hosts.helpers()
        plan = planner.plan([self._as_offer(key) for key in self._waiting], self._state.now, able)
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
        term = self._state.term
        self._routes += 1
        aggregator = self._aggregator_of(grant)
        if aggregator:
            by_slot = sorted(grant.keys, key=lambda key: self._member_of(self._waiting[key].announce).slot)
            contributions = [(key, self._contribution(self._waiting[key].announce)) for key in by_slot]
            self._bundles.expect(msg.Bundle(aggregator, term, self._routes), contributions, grant.end)
        for key, begin in zip(grant.keys, grant.begins, strict=True):
            self._granted[key] = offered = self._waiting.pop(key)
            offered.begin, offered.end, offered.term = begin, grant.end, term
            offered.number, offered.aggregator = self._routes, aggregator
            if begin > self._state.now:
                heappush(self._unsent, (begin, key))
            self._route(offered)

    def _aggregator_of(self, grant: Grant) -> str:
        """Return the worker whose process sums what is granted; empty where all of it goes straight."""
        if grant.aggregator is None or any(self._waiting[key].alone for key in grant.keys):
            return ""
        return self._hosts.helpers().get(grant.aggregator, "")

    def _contribution(self, announce: msg.Announce) -> msg.Contribution:
        return msg.Contribution(announce.member, self._member_of(announce).slot, announce.sequence)

    def _route(self, offered: _Offered) -> None:
        """Have a gradient sent, unless it is too early for that."""
        if offered.begin <= self._state.now and self._is_open(offered.announce):
            route = msg.Route(self._state.term, offered.announce.sequence, offered.number, offered.aggregator)
            self._tell(offered.announce, route)

    def _log(self, offered: Sequence[_Offered], aggregator: str = "") -> None:
        """Log that a vector has come to the servers, made of these gradients, and how long that was to take."""
        state, begin = self._state, min(one.begin for one in offered)
        end = min(one.end for one in offered)  # as it was expected last
        state.log(
            "transfer",
            slots=[self._member_of(one.announce).slot for one in offered],
            sequences=[one.announce.sequence for one in offered],
            took_s=state.now - begin,
            planned_s=max(0.0, end - begin) if end < math.inf else None,
            host=self._hosts.of(aggregator) if aggregator else offered[0].message.host,
            hosts=[one.message.host for one in offered],
        )

    def _log_servers(self, planner: TransferPlanner) -> None:
        """Log the hosts that serve, each with the bytes of a gradient for it."""
        size_bytes: dict[str, float] = {}
        for host, part_bytes in planner.servers:
            size_bytes[host] = size_bytes.get(host, 0.0) + part_bytes
        if size_bytes:
            self._state.log("servers", hosts=list(size_bytes), bytes=list(size_bytes.values()))

    def _as_sent(self, offered: _Offered) -> msg.Announce:
        """Return the announcement of a gradient whose sum has just arrived, with the seconds that it has taken."""
        waited = max(0.0, offered.begin - offered.at)
        sent = max(0.0, self._state.now - offered.begin)
        return replace(offered.announce, push_s=sent, wait_s=offered.announce.wait_s + waited)

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
        unsent_at = self._unsent[0][0] if self._unsent else math.inf
        at = min(self._tick_at, self._idle_at, unsent_at, self._bundles.next_due)
        if at < self._alarm_at:
            self._alarm_at = at
            self._state.effects.append(SetTimer(TRANSFERS, at))

    def _as_offer(self, key: int) -> Offer:
        """Return what the planner must know of an offer that waits, whose worker is there."""
        message = self._waiting[key].message
        latest = self._admission.latest(self._member_of(message.announce), message.announce)
        deadline = None if latest is None else latest - self._state.version + 1
        return Offer(key, message.host, deadline, self._waiting[key].alone)

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
