"""Offers in front of the coordinator: granted, kept waiting or dropped, as a planner says."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from psplatform.core import reasons
from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.state import TRANSFERS
from psplatform.core.plan import Plan, Protection, Stop
from psplatform.core.policy import Policy
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelTimer, SetTimer
from psplatform.core.protocol.events import Begin, CopyLost
from psplatform.core.transfers import Grant, Offer, TransferPlan
from psplatform.errors import ConfigurationError
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.delay_bounded import DelayBounded
from psplatform.policies.registry import make_policy

TICK_S = 0.125  # times that binary fractions hold exactly


@dataclass
class Planner:
    """Answers what the test says, and keeps what it was asked.

    An offer waits until `idle_at` of its host; a plan grants the hosts in `grants`, to be sent so many seconds later,
    and drops those in `drops`.
    """

    tick_s: float = TICK_S
    idle_at: dict[str, float] = field(default_factory=dict)
    grants: dict[str, float] = field(default_factory=dict)
    drops: set[str] = field(default_factory=set)
    asked: list[Offer] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    sums: bool = False
    relays: bool = False
    servers: list[tuple[str, float]] = field(default_factory=list)
    arrived: list[tuple[int, str, float, float]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    served: list[tuple[int, str, float]] = field(default_factory=list)
    sooner: dict[int, float] = field(default_factory=dict)

    def begins(self, now: float) -> dict[int, tuple[float, float]]:
        return {key: (begin, begin + 1) for key, begin in self.sooner.items()}

    def plan(self, offers: Sequence[Offer], now: float, able: Collection[str] | None = None) -> TransferPlan:
        self.planned = [one.host for one in offers]
        granted = [one for one in offers if one.host in self.grants]
        dropped = [one.key for one in offers if one.host in self.drops]
        left = [one.key for one in offers if one not in granted and one.key not in dropped]
        begins = [now + self.grants[one.host] for one in granted]
        grants = (Grant((one.key,), (at,), None, at + 1) for one, at in zip(granted, begins, strict=True))
        return TransferPlan(tuple(grants), tuple(dropped), tuple(left))

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        self.asked.append(offer)
        idle_at = self.idle_at.get(offer.host, 0.0)
        if idle_at > now:
            return idle_at
        self.waiting = [one.host for one in waiting]
        return Grant((offer.key,), (now,), None, now + 1)

    def arrive(self, key: int, host: str, begin: float, end: float) -> None:
        self.arrived.append((key, host, begin, end))

    def settle(self, key: int) -> None:
        self.settled.append(key)

    def serve(self, shard: int, host: str, now: float) -> None:
        self.served.append((shard, host, now))
        if self.servers:
            self.servers[shard] = host, self.servers[shard][1]


@pytest.fixture
def planned(open_scene: Callable[..., Any]) -> Callable[..., Any]:
    """Open a run of the workers a, b and c whose transfers are planned."""

    def make(planner: Planner | None, policy: Policy | None = None, names: str = "abc", **fields: Any) -> Any:
        known = {"run": "r", "workers": 3, "shards": 1, "samples": 100, "batch_size": 4, "schedule": Constant()}
        plan = Plan(**{**known, "stop": Stop(updates=1000), **fields})
        scene = open_scene()
        scene.coordinator, scene.plan = Coordinator(plan, policy or Asynchronous(), planner=planner), plan
        scene.handle(Begin())
        return scene.join(*names)

    return make


def offer(scene: Any, name: str, *, at: float | None = None, sequence: int | None = None, label: int = 0) -> Any:
    """Offer what a worker was last released for, from a host of the worker's name."""
    member = scene.coordinator.state.roster.by_name.get(name)
    known = member.sequence if member is not None else 1
    announce = msg.Announce(
        *(name, known if sequence is None else sequence, msg.Label((label,), (1,)), 4, 1.0, 1.0, 0.1, 0.0, 0.0, 0.0)
    )
    scene.handle(msg.Offer(announce, name), at=at)
    return scene


def routed(scene: Any) -> list[str]:
    return list(scene.addressed(msg.Route))


def alarms(scene: Any) -> list[float]:
    return [one.at for one in scene.asked(SetTimer) if one.tag == TRANSFERS]


# --- one after the other ---


def test_an_offer_whose_way_is_idle_is_granted_at_once(planned: Callable[..., Any]) -> None:
    scene = offer(planned(Planner()), "a")
    assert scene.sent(msg.Route) == [msg.Route(1, 1, 1)]
    assert (routed(scene), alarms(scene)) == (["a"], [])


def test_without_a_planner_every_offer_is_granted_at_once(planned: Callable[..., Any]) -> None:
    assert routed(offer(planned(None), "a")) == ["a"]


def test_an_offer_waits_until_its_way_is_idle(planned: Callable[..., Any]) -> None:
    scene = offer(planned(Planner(idle_at={"a": 1.0625})), "a", at=1.0)
    assert (routed(scene), alarms(scene)) == ([], [1.0625])
    scene.fire(TRANSFERS, at=1.0625)
    assert routed(scene) == ["a"]
    assert alarms(scene) == [1.125], "the tick was announced, and comes"
    assert alarms(scene.fire(TRANSFERS, at=1.125)) == [], "and no other while nothing waits"


def test_what_waits_is_planned_together_at_each_tick(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at=dict.fromkeys("abc", math.inf))
    scene = planned(planner)
    for at, name in ((1.0, "a"), (1.04, "b"), (1.06, "c")):
        offer(scene, name, at=at)
    planner.grants = {"b": 0.0}
    scene.fire(TRANSFERS, at=1.125)
    assert (planner.planned, routed(scene)) == (["a", "b", "c"], ["b"])
    assert alarms(scene) == [1.25]
    planner.grants = {"a": 0.0, "c": 0.0625}
    scene.fire(TRANSFERS, at=1.25)
    assert (planner.planned, routed(scene), alarms(scene)) == (["a", "c"], ["a"], [1.3125])
    assert routed(scene.fire(TRANSFERS, at=1.3125)) == ["c"], "when it was to begin"


def test_what_has_arrived_is_told_to_the_planner_with_when_it_was_sent(planned: Callable[..., Any]) -> None:
    planner = Planner()
    scene = offer(planned(planner), "a", at=2.0)
    scene.now = 2.5
    scene.announce("a", push_s=0.4)
    assert planner.arrived == [(planner.asked[0].key, "a", pytest.approx(2.1), 2.5)]
    assert len(scene.logged("commit")) == 1


def test_a_way_that_is_idle_before_it_was_expected_to_be_is_used(planned: Callable[..., Any]) -> None:
    """When a gradient has arrived, when its worker is lost, and when that has stopped."""
    for happens in (lambda scene: scene.announce("a"), lambda scene: scene.lose("a")):
        planner = Planner(idle_at={"b": 9.0, "c": 9.0})
        scene = planned(planner)
        for name in "abc":
            offer(scene, name, at=1.0)
        planner.idle_at = {"c": 9.0}
        scene.now = 1.0625
        happens(scene)
        assert routed(scene) == ["b"]


def test_deadlines_of_what_is_asked_for_again_count_what_has_arrived(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"b": 9.0})
    scene = planned(planner, DelayBounded(max_delay=3))
    for name in "ab":
        offer(scene, name, at=1.0)
    scene.announce("a")
    assert (planner.asked[-1].host, planner.asked[-1].deadline) == ("b", 2)


def test_an_idle_way_is_granted_with_an_eye_on_those_that_wait(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at=dict.fromkeys("ab", math.inf))
    scene = planned(planner)
    for name in "abc":
        offer(scene, name, at=1.0)
    assert (routed(scene), planner.waiting) == (["c"], ["a", "b"])


def test_what_is_to_be_sent_later_is_not_sent_when_its_way_was_expected_to_be_idle(
    planned: Callable[..., Any],
) -> None:
    planner = Planner(idle_at={"a": 1.1875, "b": math.inf})
    scene = offer(offer(planned(planner), "a", at=1.0), "b", at=1.0)
    planner.grants = {"a": 0.125}
    assert routed(scene.fire(TRANSFERS, at=1.125)) == []
    assert routed(scene.fire(TRANSFERS, at=1.1875)) == []
    assert routed(offer(scene, "a", at=1.2)) == [], "nor when it is offered again"
    assert routed(scene.fire(TRANSFERS, at=1.25)) == ["a"]


def test_what_is_to_be_sent_later_is_sent_once_what_it_waits_for_has_arrived(planned: Callable[..., Any]) -> None:
    """Once only, and never later than it was granted."""
    planner = Planner(idle_at={"b": math.inf, "c": math.inf}, grants={"b": 0.0625, "c": 0.1})
    scene = offer(offer(offer(planned(planner), "a", at=1.0), "b", at=1.0), "c", at=1.0)
    assert routed(scene.fire(TRANSFERS, at=1.125)) == []
    planner.sooner = {2: 1.15, 3: 9.0}
    scene.now = 1.15
    assert routed(scene.announce("a")) == ["b"]
    assert alarms(scene) == []
    assert routed(scene.fire(TRANSFERS, at=1.1875)) == []
    assert routed(scene.fire(TRANSFERS, at=1.225)) == ["c"]
    scene.now = 2.15
    scene.announce("b", push_s=1.0)
    assert [one["planned_s"] for one in scene.logged("transfer")][-1] == pytest.approx(1.0), "as it was expected last"


def test_once_a_way_is_idle_the_oldest_offers_are_asked_for_until_one_finds_it_busy(
    planned: Callable[..., Any],
) -> None:
    """However many wait behind them."""
    names = "abcdefgh"
    planner = Planner(idle_at=dict.fromkeys(names, 1.0625))
    scene = planned(planner, names=names)
    for name in names:
        offer(scene, name, at=1.0)
    planner.asked.clear()
    planner.idle_at = {"a": 1.0} | dict.fromkeys(names[1:], 1.1)
    assert routed(scene.fire(TRANSFERS, at=1.0625)) == ["a"]
    assert [one.host for one in planner.asked] == ["a", "b"]
    assert alarms(scene) == [1.1]


def test_what_can_only_be_planned_does_not_keep_those_behind_it_from_being_asked_for(
    planned: Callable[..., Any],
) -> None:
    planner = Planner(idle_at={"a": math.inf, "b": 1.0625})
    scene = offer(offer(planned(planner), "a", at=1.0), "b", at=1.0)
    assert routed(scene.fire(TRANSFERS, at=1.0625)) == ["b"]


def test_seconds_of_waiting_are_those_of_the_worker_also_where_it_is_dropped(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"a": math.inf}, drops={"a"})
    scene = offer(planned(planner), "a", at=1.0).fire(TRANSFERS, at=1.125)
    assert [one["wait_s"] for one in scene.logged("gradient")] == [0.125]


@pytest.mark.parametrize("name", ["dbw", "cutoff", "backup", "dssp", "elastic-bsp"])
def test_a_policy_that_counts_arrivals_takes_no_sums(planned: Callable[..., Any], name: str) -> None:
    with pytest.raises(ConfigurationError, match="takes no sums of gradients.*choose bsp, asp, ssp or delay-bounded"):
        planned(Planner(sums=True), make_policy(name, {}))


def test_a_policy_that_decides_block_by_block_is_refused(planned: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="block by block; choose another policy"):
        planned(Planner(), make_policy("psp", {}), shards=2)


# --- what a planner drops ---


def test_what_is_dropped_is_logged_with_its_gradient_and_its_worker_goes_on(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at=dict.fromkeys("abc", math.inf), drops={"b"})
    scene = planned(planner)
    for name in "abc":
        offer(scene, name, at=1.0)
    scene.fire(TRANSFERS, at=1.125)
    assert (scene.sent(msg.Drop), scene.addressed(msg.Drop)) == ([msg.Drop(1, 1)], ["b"])
    assert scene.addressed(msg.Release) == ["b"]
    (dropped,) = scene.logged("dropped")
    assert (dropped["slot"], dropped["sequence"], dropped["reason"]) == (1, 1, reasons.NOT_SENT)
    assert dropped["detail"] == "computed on version 0, the model is at 0"
    assert [one["slot"] for one in scene.logged("gradient")] == [1]
    assert not scene.logged("commit")


PROTECTED = {"shards": 2, "protection": Protection(1, 8, "updates", 8)}


def test_the_planner_hears_where_a_promoted_server_is_once_it_serves(planned: Callable[..., Any]) -> None:
    planner = Planner()
    scene = planned(planner, **PROTECTED)
    scene.coordinator.state.processes["replica-1-0"] = "tcp://10.0.0.2:4000 pid 7"
    scene.handle(CopyLost("server-1", "tcp://10.0.0.1:4000", "killed"))
    assert planner.served == []
    promoted = msg.Promoted(1, "replica-1-0", 2, 0, 0, 1)
    scene.handle(promoted, at=6.0)
    scene.handle(promoted, at=7.0)
    assert planner.served == [(1, "10.0.0.2", 6.0)]


def test_the_log_says_on_which_hosts_the_servers_are_at_first_and_once_another_serves(
    planned: Callable[..., Any],
) -> None:
    """Each host with the bytes of a gradient for all servers there."""
    scene = planned(Planner(servers=[("10.0.0.1", 60.0), ("10.0.0.1", 20.0)]), **PROTECTED)
    scene.coordinator.state.processes["replica-1-0"] = "tcp://10.0.0.2:4000 pid 7"
    scene.handle(CopyLost("server-1", "tcp://10.0.0.1:4000", "killed"))
    scene.handle(msg.Promoted(1, "replica-1-0", 2, 0, 0, 1), at=6.0)
    assert [(one["at"], one["hosts"], one["bytes"]) for one in scene.logged("servers")] == [
        (0.0, ["10.0.0.1"], [80.0]),
        (6.0, ["10.0.0.1", "10.0.0.2"], [60.0, 20.0]),
    ]


@pytest.mark.parametrize("planner", [None, Planner()])
def test_where_no_servers_are_known_none_are_logged(planned: Callable[..., Any], planner: Planner | None) -> None:
    assert planned(planner).logged("servers") == []


def test_what_has_arrived_is_logged_with_the_host_that_it_came_from(planned: Callable[..., Any]) -> None:
    scene = offer(planned(Planner()), "a", at=2.0)
    scene.now = 2.5
    scene.announce("a")
    assert scene.logged("transfer") == [
        {"kind": "transfer", "at": 2.5, "slots": [0], "sequences": [1], "took_s": 0.5, "planned_s": 1.0, "host": "a",
         "hosts": ["a"]}
    ]  # fmt: skip
    assert not offer(planned(None), "a").announce("a").logged("transfer")


def test_a_server_of_which_no_process_is_known_stays_where_it_was_for_the_planner(planned: Callable[..., Any]) -> None:
    planner = Planner()
    scene = planned(planner, **PROTECTED)
    scene.handle(CopyLost("server-1", "tcp://10.0.0.1:4000", "killed"))
    scene.handle(msg.Promoted(1, "replica-1-0", 2, 0, 0, 1))
    assert planner.served == []


def test_a_coordinator_that_takes_over_tells_its_own_planner_of_the_promotion(planned: Callable[..., Any]) -> None:
    """The one before may have ended between ordering it and hearing of it."""
    scene = planned(Planner(), **PROTECTED)
    scene.coordinator.state.processes["replica-1-0"] = "tcp://10.0.0.2:4000 pid 7"
    scene.handle(CopyLost("server-1", "tcp://10.0.0.1:4000", "killed"))
    scene.take_over()
    scene.handle(msg.Promoted(1, "replica-1-0", 2, 0, 0, 2), at=6.0)
    planner = scene.coordinator.transfers._planner
    assert planner.served == []
    scene.handle(msg.ServerState(0, "server-0", 2, 1, serving=True, position=0, commits=()), at=6.5)
    assert planner.served == [(1, "10.0.0.2", 6.5)]


def test_the_batch_of_what_is_dropped_is_dealt_again(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"a": math.inf}, drops={"a"})
    scene = planned(planner, names="a", deal_epochs=True)
    (before,) = scene.sent(msg.Release)
    offer(scene, "a", at=1.0).fire(TRANSFERS, at=1.125)
    (after,) = scene.sent(msg.Release)
    assert after.assignment == before.assignment


def test_a_deadline_is_what_the_policy_still_applies_counted_from_the_next_update(
    planned: Callable[..., Any],
) -> None:
    planner = Planner()
    scene = planned(planner, DelayBounded(max_delay=3))
    offer(scene, "a")
    assert planner.asked[-1].deadline == 3
    offer(scene, "b")
    scene.announce("a", label=0)
    scene.announce("b", label=0)
    assert scene.coordinator.state.version == 2
    offer(scene, "c", label=0)
    assert planner.asked[-1].deadline == 1, "only the next update may be its own"


def test_what_is_dropped_under_a_bound_is_logged_with_the_version_that_it_could_have_met(
    planned: Callable[..., Any],
) -> None:
    scene = planned(Planner(idle_at={"c": math.inf}, drops={"c"}), DelayBounded(max_delay=3))
    offer(scene, "c", at=1.0)
    scene.announce("a")
    scene.fire(TRANSFERS, at=1.125)
    (dropped,) = scene.logged("dropped")
    assert dropped["detail"] == "computed on version 0, the model is at 1, it could be applied up to version 2"


def test_a_finite_gradient_that_is_dropped_shows_that_its_worker_has_not_diverged(
    planned: Callable[..., Any],
) -> None:
    planner = Planner(idle_at={"a": math.inf}, drops={"a"})
    scene = planned(planner)
    scene.announce("a", loss=math.nan)
    assert set(scene.coordinator.divergence.non_finite) == {0}
    offer(scene, "a", at=1.0).fire(TRANSFERS, at=1.125)
    assert not scene.coordinator.divergence.non_finite


def test_without_a_bound_there_is_no_deadline(planned: Callable[..., Any]) -> None:
    planner = Planner()
    offer(planned(planner), "a")
    assert planner.asked[-1].deadline is None


# --- what is out of turn ---


def test_a_repeated_offer_is_answered_alike_and_planned_once(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"b": math.inf})
    scene = planned(planner)
    assert routed(offer(offer(scene, "a"), "a")) == ["a"]
    offer(offer(scene, "b", at=1.0), "b")
    assert routed(scene) == []
    assert [one.host for one in planner.asked] == ["a", "b"]
    scene.fire(TRANSFERS, at=1.125)
    assert planner.planned == ["b"]


def test_an_unknown_worker_is_told_to_join_again(planned: Callable[..., Any]) -> None:
    scene = offer(planned(Planner()), "z")
    assert scene.sent(msg.Stop) == [msg.Stop(1, msg.JOIN_AGAIN)]


def test_what_a_worker_is_no_longer_busy_with_is_dropped(planned: Callable[..., Any]) -> None:
    scene = planned(Planner())
    scene.announce("a")
    assert scene.coordinator.state.roster.by_name["a"].sequence == 2
    assert offer(scene, "a", sequence=1).sent(msg.Drop) == [msg.Drop(1, 1)]


def test_of_a_worker_that_is_lost_nothing_is_planned_or_expected(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"b": math.inf, "c": math.inf})
    scene = planned(planner)
    for name in "abc":
        offer(scene, name, at=1.0)
    granted = planner.asked[0].key
    scene.lose("a").lose("b").fire(TRANSFERS, at=1.125)
    assert (planner.planned, planner.settled) == (["c"], [granted])


def test_a_gradient_that_a_worker_was_told_to_abort_on_its_way_is_expected_no_longer(
    planned: Callable[..., Any],
) -> None:
    planner = Planner()
    scene = planned(planner, BackupWorkers(k=1, busy="abort"))
    for name in "abc":
        offer(scene, name)
    scene.announce("a")
    assert len(scene.coordinator.offers.granted) == 2
    for name in "bc":
        scene.handle(msg.Aborted(name, 1, 0.0))
    assert not scene.coordinator.offers.granted
    assert sorted(planner.settled) == [2, 3]


def test_one_that_is_lost_on_its_way_is_expected_no_longer(planned: Callable[..., Any]) -> None:
    planner = Planner()
    scene = offer(planned(planner), "a").lose("a")
    assert (planner.settled, len(scene.coordinator.offers.granted)) == ([1], 0)


def test_what_was_to_be_sent_later_is_not_sent_once_its_worker_is_lost(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at=dict.fromkeys("ab", math.inf), grants={"a": 0.0625, "b": 0.0625})
    scene = planned(planner)
    offer(offer(scene, "a", at=1.0), "b", at=1.0).fire(TRANSFERS, at=1.125)
    assert routed(scene.lose("a").fire(TRANSFERS, at=1.1875)) == ["b"]


def test_what_was_aborted_is_neither_planned_nor_answered(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at=dict.fromkeys("bc", math.inf))
    scene = planned(planner, BackupWorkers(k=1, busy="abort"))
    for name in "abc":
        offer(scene, name, at=1.0)
    scene.announce("a")
    assert sorted(scene.addressed(msg.Abort)) == ["b", "c"]
    offer(scene, "b", sequence=1)
    assert (routed(scene), scene.sent(msg.Drop)) == ([], [])
    scene.fire(TRANSFERS, at=1.125)
    assert planner.planned == []
    assert alarms(scene) == []


def test_a_run_that_ends_lets_what_is_offered_come(planned: Callable[..., Any]) -> None:
    """It is dropped when it is announced, as what was under way is."""
    planner = Planner(idle_at={"c": math.inf})
    scene = planned(planner, stop=Stop(updates=1))
    offer(scene, "c", at=1.0)
    scene.announce("a")
    assert scene.coordinator.state.stopping
    assert CancelTimer(TRANSFERS) in scene.effects
    assert routed(offer(scene, "b")) == ["b"]
    assert scene.fire(TRANSFERS, at=1.125).effects == []


# --- takeovers ---


def settled(scene: Any, *, term: int = 2) -> Any:
    """Let the server of the only shard and every worker tell a new coordinator what they know."""
    state = scene.coordinator.state
    position = state.commit_logs[0].position
    scene.handle(msg.ServerState(0, "server-0", term, 1, True, position, ()))
    for member in state.roster.members():
        last = member.sequence, member.counter, None
        scene.handle(msg.WorkerState(term, member.name, *last, (), False))
    return scene


def test_a_coordinator_that_takes_over_grants_what_is_offered_again(planned: Callable[..., Any]) -> None:
    scene = offer(planned(Planner()), "a", at=1.0)
    settled(scene.take_over())
    offer(scene, "a")
    assert scene.sent(msg.Route) == [msg.Route(2, 1, 1)]


def test_how_long_a_transfer_took_is_not_known_where_its_end_was_kept_until_a_takeover_was_over(
    planned: Callable[..., Any],
) -> None:
    planner = Planner()
    scene = offer(planned(planner), "a", at=1.0)
    settled(scene.take_over(at=1.5))
    scene.now = 9.0
    scene.announce("a")
    found = scene.coordinator.transfers._planner
    assert (found.arrived, found.settled) == ([], [1])


def test_what_only_the_lost_coordinator_had_granted_is_planned_no_longer(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"a": math.inf})
    scene = offer(planned(planner), "a", at=1.0)
    settled(scene.take_over(at=1.0625))
    scene.announce("a")
    assert len(scene.logged("commit")) == 1
    assert not scene.coordinator.offers.waiting


def test_what_only_the_lost_coordinator_had_dropped_is_given_up(planned: Callable[..., Any]) -> None:
    """Its worker is released again: nothing of that gradient will be announced."""
    planner = Planner(idle_at={"a": math.inf})
    scene = offer(planned(planner, names="a"), "a", at=1.0)
    scene.take_over(at=1.0625)
    scene.handle(msg.ServerState(0, "server-0", 2, 1, True, 0, ()))
    scene.handle(msg.WorkerState(2, "a", 1, 0, None, (), True))
    assert [one.sequence for one in scene.sent(msg.Release)] == [2]


def test_of_a_worker_that_only_the_lost_coordinator_had_lost_nothing_is_expected(planned: Callable[..., Any]) -> None:
    """It had given the slot to another, whose gradient a server knows."""
    planner = Planner()
    scene = offer(planned(planner, names="a"), "a", at=1.0)
    scene.take_over(at=1.5)
    commit = msg.Commit(1, 1, 1, 1, (msg.Contribution("other", 0, 1),), 1.0)
    scene.handle(msg.ServerState(0, "server-0", 2, 1, True, 1, (commit,)))
    offers = scene.coordinator.offers
    assert (offers.granted, offers._keys, scene.coordinator.transfers._planner.settled) == ({}, {}, [1])


def test_what_was_dropped_is_dropped_again_if_that_did_not_arrive(planned: Callable[..., Any]) -> None:
    planner = Planner(idle_at={"a": math.inf}, drops={"a"})
    scene = offer(planned(planner), "a", at=1.0).fire(TRANSFERS, at=1.125)
    assert scene.coordinator.state.roster.by_name["a"].sequence == 2
    settled(scene.take_over(at=1.25))
    assert offer(scene, "a", sequence=1).sent(msg.Drop) == [msg.Drop(2, 1)]


def test_a_copy_of_a_coordinator_plans_for_itself(planned: Callable[..., Any]) -> None:
    scene = planned(Planner(idle_at={"a": 9.0}))
    copy = deepcopy(scene.coordinator)
    offer(scene, "a", at=1.0)
    assert (len(scene.coordinator.offers.waiting), len(copy.offers.waiting)) == (1, 0)
