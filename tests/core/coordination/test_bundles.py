"""Gradients that a planner has summed on their way: who sums what, what is committed, and what is sent again."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from psplatform.core import reasons
from psplatform.core.coordination import Coordinator
from psplatform.core.coordination.order.commit_logs import clipping_factor
from psplatform.core.coordination.state import TRANSFERS
from psplatform.core.plan import Cuts, Plan, Stop
from psplatform.core.policy import Policy, Scope
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Seal, SetTimer
from psplatform.core.protocol.events import Begin, CheckpointSealed
from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.core.transfers import Grant, Offer, TransferPlan
from psplatform.errors import ConfigurationError
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.delay_bounded import DelayBounded
from psplatform.policies.registry import make_policy, policy_names
from psplatform.policies.ssp import StaleSynchronous

TICK_S = 0.125  # times that binary fractions hold exactly
AT = 1.0
TICK = AT + TICK_S


@dataclass
class Together:
    """Grants at each tick all offers that wait as one group, which goes through `aggregator`, if there is one.

    They are sent `begins_s` later and expected at the servers `lasts_s` later.  Only where a way is `idle` an offer is
    granted at once, straight.
    """

    aggregator: str | None = "b"
    begins_s: float = 0.0
    lasts_s: float = 0.25
    idle: bool = False
    tick_s: float = TICK_S
    sums: bool = True
    relays: ClassVar[bool] = False
    servers: ClassVar[tuple[tuple[str, float], ...]] = ()
    planned: list[list[str]] = field(default_factory=list)
    able: list[str] = field(default_factory=list)
    arrived: list[tuple[int, str, float, float]] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)

    def plan(self, offers: Sequence[Offer], now: float, able: Collection[str] | None = None) -> TransferPlan:
        self.planned.append([one.host for one in offers])
        self.able = [host for host in "abcd" if able is not None and host in able]
        if not offers:
            return TransferPlan((), (), ())
        keys, begin = tuple(one.key for one in offers), now + self.begins_s
        return TransferPlan((Grant(keys, (begin,) * len(keys), self.aggregator, now + self.lasts_s),), (), ())

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        return Grant((offer.key,), (now,), None, now + self.lasts_s) if self.idle else math.inf

    def begins(self, now: float) -> dict[int, tuple[float, float]]:
        return {}

    def arrive(self, key: int, host: str, begin: float, end: float) -> None:
        self.arrived.append((key, host, begin, end))

    def seen(self, sender: str, receiver: str, begin: float, end: float) -> None:
        pass

    def serve(self, shard: int, host: str, now: float) -> None:
        pass

    def settle(self, key: int) -> None:
        self.settled.append(key)


Planned = Callable[..., Any]


@pytest.fixture
def planned(open_scene: Callable[..., Any]) -> Planned:
    """Open a run of the workers a, b and c whose transfers are planned."""

    def make(planner: Together, policy: Policy | None = None, names: str = "abc", **fields: Any) -> Any:
        known = {"run": "r", "workers": 3, "shards": 1, "samples": 100, "batch_size": 4, "schedule": Constant()}
        plan = Plan(**{**known, "stop": Stop(updates=1000), **fields})
        scene = open_scene()
        scene.records.clear()
        scene.coordinator, scene.plan = Coordinator(plan, policy or Asynchronous(), planner=planner), plan
        scene.handle(Begin())
        return scene.join(*names)

    return make


def offer(scene: Any, names: str, *, at: float | None = None, **fields: Any) -> Any:
    """Offer what each worker was last released for, on what it was released on, from a host of the worker's name."""
    state = scene.coordinator.state
    for name in names:
        member = state.roster.by_name[name]
        sequence, label = fields.get("sequence", member.sequence), fields.get("label", max(0, member.version))
        dealer = state.batch_scheduler
        assignment = dealer.assignment(member.slot, sequence) if dealer is not None else None
        figures = 4, 1.0, 1.0, 0.1, 0.0, 0.0, 0.0
        announce = msg.Announce(name, sequence, msg.Label((label,), (1,)), *figures, assignment=assignment)
        scene.handle(msg.Offer(announce, fields.get("host", name)), at=at)
    return scene


def granted(scene: Any, names: str = "abc", *, at: float = AT) -> Any:
    """Let workers offer, and the next tick come."""
    return offer(scene, names, at=at).fire(TRANSFERS, at=at + TICK_S)


def bundled(scene: Any, number: int = 1, aggregator: str = "b", *, term: int = 1, at: float | None = None) -> Any:
    """Say that a sum is at the servers."""
    scene.handle(msg.Bundled(Bundle(aggregator, term, number), 0.25), at=at)
    return scene


def routes(scene: Any) -> dict[str, msg.Route]:
    return dict(zip(scene.addressed(msg.Route), scene.sent(msg.Route), strict=True))


def straight(scene: Any, names: str) -> bool:
    """Whether exactly these workers are told in the last answer to send straight to the servers."""
    found = routes(scene)
    return sorted(found) == sorted(names) and all(not one.aggregator for one in found.values())


def alarms(scene: Any) -> list[float]:
    return [one.at for one in scene.asked(SetTimer) if one.tag == TRANSFERS]


def identities(scene: Any) -> list[tuple[int, int]]:
    """Return slot and sequence of everything that is committed."""
    commits = scene.logged("commit")
    return [key for one in commits for key in zip(one["slots"], one["sequences"], strict=True)]


def of_bundle(bundle: Bundle | None, *sequences: int) -> tuple[Contribution, ...]:
    """Return the contributions of a, b and c, whose slots are 0, 1 and 2."""
    return tuple(
        Contribution(name, slot, sequence, None, bundle)
        for slot, (name, sequence) in enumerate(zip("abc", sequences, strict=False))
    )


# --- who is told what ---


def test_members_are_told_who_sums_and_the_aggregator_what(planned: Planned) -> None:
    """In the order of the slots, whoever offered first."""
    scene = planned(Together())
    for name in "cab":
        offer(scene, name, at=AT)
        assert scene.sent(msg.Route) == scene.sent(msg.Assemble) == []
    scene.fire(TRANSFERS, at=TICK)
    assert routes(scene) == dict.fromkeys("abc", msg.Route(1, 1, 1, "b"))
    assert scene.addressed(msg.Assemble) == ["b"]
    assert scene.sent(msg.Assemble) == [msg.Assemble(1, 1, of_bundle(None, 1, 1, 1), 1, 1)]


def test_of_the_workers_of_a_host_that_of_the_lowest_slot_sums(planned: Planned) -> None:
    scene = offer(offer(planned(Together("here")), "cb", at=AT, host="here"), "a").fire(TRANSFERS, at=TICK)
    assert scene.addressed(msg.Assemble) == ["b"]
    assert {one.aggregator for one in scene.sent(msg.Route)} == {"b"}


def test_without_a_worker_on_the_host_that_is_to_sum_everything_goes_straight(planned: Planned) -> None:
    scene = granted(planned(Together("d")))
    assert straight(scene, "abc")
    assert scene.sent(msg.Assemble) == []


def test_the_aggregator_is_told_at_once_and_members_when_it_is_time(planned: Planned) -> None:
    scene = granted(planned(Together(begins_s=0.0625)))
    assert scene.addressed(msg.Assemble) == ["b"]
    assert (routes(scene), alarms(scene)) == ({}, [1.1875])
    assert sorted(routes(scene.fire(TRANSFERS, at=1.1875))) == ["a", "b", "c"]


def test_an_aggregator_is_told_which_bundles_are_over(planned: Planned) -> None:
    scene = granted(granted(planned(Together()), "ab"), "c", at=1.25)
    assert [(one.number, one.oldest) for one in scene.sent(msg.Assemble)] == [(2, 1)]
    granted(bundled(scene, 1), "ab", at=1.5)
    assert [(one.number, one.oldest) for one in scene.sent(msg.Assemble)] == [(3, 1)], "servers may ask for it"
    scene.handle(msg.Applied(0, 1, 1, 2, ()), at=1.6)
    granted(bundled(scene, 3), "ab", at=1.75)
    assert [(one.number, one.oldest) for one in scene.sent(msg.Assemble)] == [(4, 2)]


def test_a_sum_that_waits_for_the_rest_of_its_round_is_not_over(planned: Planned) -> None:
    scene = granted(planned(Together(), BulkSynchronous()), "ab")
    granted(bundled(scene, 1), "c", at=1.5)
    assert [(one.number, one.oldest) for one in scene.sent(msg.Assemble)] == [(2, 1)]


def test_a_repeated_offer_of_what_is_being_summed_is_answered_alike(planned: Planned) -> None:
    scene = granted(planned(Together()))
    assert routes(offer(scene, "a")) == {"a": msg.Route(1, 1, 1, "b")}
    assert scene.sent(msg.Assemble) == []
    assert not scene.coordinator.offers.waiting


# --- what is committed ---


def test_a_sum_is_one_commit_of_as_many_versions_as_gradients(planned: Planned) -> None:
    scene = bundled(granted(planned(Together())), at=1.5)
    (record,) = scene.logged("commit")
    assert (record["position"], record["version"], record["versions"]) == (1, 3, 3)
    assert (record["slots"], record["sequences"], record["bundles"]) == ([0, 1, 2], [1, 1, 1], [1, 1, 1])
    (commit,) = scene.sent(msg.Commit)
    assert (commit.position, commit.version, commit.updates) == (1, 3, 3)
    assert commit.contributions == of_bundle(Bundle("b", 1, 1), 1, 1, 1)
    assert (scene.coordinator.state.version, scene.coordinator.state.samples_applied) == (3, 12)
    assert not scene.coordinator.offers.granted


def test_staleness_counts_those_that_are_ahead_in_the_sum(planned: Planned) -> None:
    scene = planned(Together())
    scene.announce("a")  # computed on version 0, as is what b and c offer
    bundled(granted(scene))
    assert [one["staleness"] for one in scene.logged("commit")] == [[0], [0, 2, 3]]


def test_the_next_commit_is_one_position_and_as_many_versions_later(planned: Planned) -> None:
    scene = bundled(granted(planned(Together())))
    scene.announce("a")
    last = scene.logged("commit")[-1]
    assert (last["position"], last["version"], last["versions"], last["staleness"]) == (2, 4, 1, [0])
    assert "bundles" not in last
    assert [(one.updates, one.contributions) for one in scene.sent(msg.Commit)] == [(1, (Contribution("a", 0, 2),))]


def test_members_are_released_on_the_version_that_has_all_of_them(planned: Planned) -> None:
    scene = bundled(granted(planned(Together())))
    assert scene.addressed(msg.Release) == ["a", "b", "c"]
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(2, 3)] * 3


def test_each_gradient_is_logged_with_the_seconds_that_it_waited_and_was_under_way(planned: Planned) -> None:
    scene = bundled(granted(planned(Together(begins_s=0.0625))).fire(TRANSFERS, at=1.1875), at=1.5)
    assert [one["slot"] for one in scene.logged("gradient")] == [0, 1, 2]
    assert {(one["wait_s"], one["push_s"]) for one in scene.logged("gradient")} == {(0.1875, 0.3125)}


def test_the_planner_learns_how_long_the_sum_took_from_its_aggregator(planned: Planned) -> None:
    planner = Together()
    bundled(granted(planned(planner)), at=1.5)
    ((_, host, begin, end),) = planner.arrived
    assert (host, begin, end) == ("b", 1.25, 1.5)
    assert planner.settled == []


def test_a_sum_is_logged_with_the_hosts_that_its_gradients_came_from(planned: Planned) -> None:
    scene = bundled(granted(planned(Together())))
    (found,) = scene.logged("transfer")
    assert (found["slots"], found["host"], found["hosts"]) == ([0, 1, 2], "b", ["a", "b", "c"])


def test_a_sum_that_is_announced_again_counts_once(planned: Planned) -> None:
    scene = bundled(bundled(granted(planned(Together()))))
    assert scene.sent(msg.Assemble) == [msg.Assemble(1, 0, (), 1, 1)], "only what is over is told: nothing yet"
    assert len(scene.effects) == 1
    assert len(scene.logged("commit")) == 1


def test_a_sum_of_one_is_an_update_like_any_other(planned: Planned) -> None:
    scene = bundled(granted(planned(Together()), "b"))
    (record,) = scene.logged("commit")
    assert (record["version"], record["versions"], record["bundles"]) == (1, 1, [1])


def test_clocks_count_each_gradient_of_a_sum(planned: Planned) -> None:
    """Who waits for the slowest goes on when a sum has a gradient of it."""
    scene = planned(Together(), StaleSynchronous(bound=0))
    scene.announce("a")
    assert scene.sent(msg.Release) == []
    bundled(granted(scene, "bc"))
    assert sorted(scene.addressed(msg.Release)) == ["a", "b", "c"]


# --- rounds ---


def test_a_round_pools_what_was_summed_and_is_a_mean_of_one_version(planned: Planned) -> None:
    planner = Together()
    scene = bundled(granted(planned(planner, BulkSynchronous()), "ab"))
    assert (scene.logged("commit"), scene.coordinator.state.pooled) == ([], 2)
    assert scene.sent(msg.Release) == []
    planner.aggregator = None
    granted(scene, "c", at=1.5).announce("c")
    (record,) = scene.logged("commit")
    assert (record["version"], record["versions"], record["staleness"]) == (1, 1, [0, 0, 0])
    assert (record["slots"], record["bundles"]) == ([0, 1, 2], [1, 1, 0])
    (commit,) = scene.sent(msg.Commit)
    assert (commit.version, commit.updates) == (1, 1)
    assert [one.bundle for one in commit.contributions] == [Bundle("b", 1, 1)] * 2 + [None]
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(2, 1)] * 3


def test_a_round_may_be_made_of_several_sums(planned: Planned) -> None:
    scene = granted(granted(planned(Together("c"), BulkSynchronous()), "ac"), "b", at=1.25)
    bundled(bundled(scene, 2, "c"), 1, "c")
    (record,) = scene.logged("commit")
    assert (record["slots"], record["bundles"], record["version"]) == ([0, 1, 2], [1, 2, 1], 1)


def test_a_round_keeps_what_was_summed_of_a_worker_that_is_lost_since(planned: Planned) -> None:
    scene = bundled(granted(planned(Together(), BulkSynchronous()), "ab")).lose("a").lose("b")
    scene.announce("c")
    assert identities(scene) == [(0, 1), (1, 1), (2, 1)]


# --- what cannot be used as a whole ---


@pytest.fixture
def refused(planned: Planned) -> Any:
    """Return a run that has just heard of a sum of three of which b's is too stale."""
    scene = planned(Together(), DelayBounded(max_delay=4))
    for name in "aaaa":
        scene.announce(name)
    offer(offer(scene, "ac", at=AT, label=4), "b", label=0)
    scene.records.clear()
    return bundled(scene.fire(TRANSFERS, at=TICK))


def test_one_that_comes_too_late_is_dropped_and_nothing_of_its_sum_is_committed(refused: Any) -> None:
    assert refused.logged("commit") == []
    (dropped,) = refused.logged("dropped")
    assert (dropped["slot"], dropped["sequence"], dropped["reason"]) == (1, 1, "delay")
    assert dropped["detail"] == "staleness 4, at most 3 is allowed by a delay bound of 4"
    assert [one["slot"] for one in refused.logged("gradient")] == [1]
    assert refused.addressed(msg.Release) == ["b"]


def test_the_others_are_sent_straight_and_committed_one_by_one(refused: Any) -> None:
    planner = refused.coordinator.transfers._planner
    assert (len(refused.coordinator.offers.waiting), len(refused.coordinator.offers.granted)) == (2, 0)
    assert len(planner.settled) == 2
    assert alarms(refused) == [TICK + TICK_S]
    refused.fire(TRANSFERS, at=TICK + TICK_S)
    assert routes(refused) == {"a": msg.Route(1, 5, 2), "c": msg.Route(1, 1, 2)}
    refused.announce("c", label=4).announce("a", label=4)
    commits = refused.logged("commit")
    assert [(one["slots"], one["version"], one["staleness"]) for one in commits] == [([2], 5, [0]), ([0], 6, [1])]
    assert not any("bundles" in one for one in commits)
    assert [one["slot"] for one in refused.logged("gradient")] == [1, 2, 0]


def test_where_one_is_fresh_enough_only_without_those_ahead_of_it_all_are_sent_again(planned: Planned) -> None:
    scene = bundled(granted(planned(Together(), DelayBounded(max_delay=2))))
    assert scene.logged("dropped") == scene.logged("commit") == []
    scene.fire(TRANSFERS, at=1.25)
    assert straight(scene, "abc")


def test_a_sum_of_which_all_are_refused_is_dropped(planned: Planned) -> None:
    scene = granted(planned(Together(), DelayBounded(max_delay=1)), "ab")
    bundled(scene.announce("c"))
    assert [(one["slot"], one["reason"]) for one in scene.logged("dropped")] == [(0, "delay"), (1, "delay")]
    assert [(one.sequence, one.version) for one in scene.sent(msg.Release)] == [(2, 1), (2, 1)]
    assert scene.coordinator.offers.waiting == scene.coordinator.offers.granted == {}
    assert identities(scene) == [(2, 1)]


def test_the_batch_of_one_that_is_refused_is_dealt_again_and_those_of_the_others_stay(planned: Planned) -> None:
    scene = planned(Together(), DelayBounded(max_delay=2), deal_epochs=True)
    dealer = scene.coordinator.state.batch_scheduler
    scene.announce("a").announce("a", label=1)
    before = [dealer.assignment(slot, sequence) for slot, sequence in ((0, 3), (1, 1), (2, 1))]
    offer(offer(scene, "ab", at=AT, label=2), "c", label=0)
    bundled(scene.fire(TRANSFERS, at=TICK))
    (release,) = scene.sent(msg.Release)
    assert (scene.addressed(msg.Release), release.assignment) == (["c"], before[2])
    assert [dealer.assignment(slot, sequence) for slot, sequence in ((0, 3), (1, 1))] == before[:2]
    scene.announce("a", label=2).announce("b", label=2)
    assert identities(scene)[2:] == [(0, 3), (1, 1)]


def test_batches_that_were_applied_in_a_sum_are_not_dealt_again(planned: Planned) -> None:
    scene = planned(Together(), deal_epochs=True)
    dealer = scene.coordinator.state.batch_scheduler
    before = [dealer.assignment(slot, 1) for slot in range(3)]
    bundled(granted(scene))
    (commit,) = scene.sent(msg.Commit)
    assert [one.assignment for one in commit.contributions] == before
    after = [one.assignment for one in scene.sent(msg.Release)]
    assert len({*before, *after}) == 6


def test_a_run_stops_after_exactly_as_many_updates_as_it_is_told(planned: Planned) -> None:
    """A sum of more is sent again, one by one."""
    scene = bundled(granted(planned(Together(), stop=Stop(updates=4))))
    assert not scene.coordinator.state.stopping
    bundled(granted(scene, at=2.0), 2)
    assert (scene.coordinator.state.version, scene.logged("dropped")) == (3, [])
    assert straight(scene.fire(TRANSFERS, at=2.25), "abc")
    scene.announce("b")
    assert scene.coordinator.state.stopping
    scene.announce("a").announce("c")
    assert [(one["version"], one["versions"]) for one in scene.logged("commit")] == [(3, 3), (4, 1)]
    assert [(one["slot"], one["reason"]) for one in scene.logged("dropped")] == [
        (0, reasons.STOPPED),
        (2, reasons.STOPPED),
    ]


def test_a_sum_of_as_many_as_are_wanted_ends_the_run(planned: Planned) -> None:
    scene = bundled(granted(planned(Together(), stop=Stop(updates=3))))
    assert scene.coordinator.state.stopping
    assert [(one["version"], one["versions"]) for one in scene.logged("commit")] == [(3, 3)]
    assert scene.sent(msg.Release) == []


def test_what_comes_in_a_sum_after_the_last_commit_is_dropped(planned: Planned) -> None:
    scene = granted(planned(Together(), stop=Stop(updates=1)), "ab")
    scene.announce("c")
    assert scene.coordinator.state.stopping
    bundled(scene)
    assert [(one["slot"], one["reason"]) for one in scene.logged("dropped")] == [
        (0, reasons.STOPPED),
        (1, reasons.STOPPED),
    ]
    assert len(scene.logged("commit")) == 1


# --- what does not come ---


def given_up(scene: Any, names: str, *, number: int = 2, late: int = 1, aggregator: str = "b") -> None:
    """Check that these workers send straight at the next tick, and that what was given up counts for nothing."""
    (tick,) = alarms(scene)
    bundled(scene, late, aggregator)
    assert scene.logged("commit") == []
    scene.fire(TRANSFERS, at=tick)
    assert routes(scene) == {name: msg.Route(1, 1, number) for name in names}
    assert scene.sent(msg.Assemble) == []
    bundled(scene, late, aggregator)
    assert scene.logged("commit") == []
    assert len(scene.coordinator.offers.granted) == len(names)
    for name in names:
        scene.announce(name)
    assert [one["versions"] for one in scene.logged("commit")] == [1] * len(names)


def test_a_sum_without_a_member_that_is_lost_is_given_up(planned: Planned) -> None:
    given_up(granted(planned(Together())).lose("a"), "bc")


def test_a_sum_whose_aggregator_is_lost_is_given_up(planned: Planned) -> None:
    given_up(granted(planned(Together())).lose("b"), "ac")


def test_a_sum_whose_aggregator_is_lost_that_gives_nothing_to_it_is_given_up(planned: Planned) -> None:
    planner = Together(None)
    scene = granted(planned(planner, names="abcd"), "d", at=0.5)
    planner.aggregator = "d"
    granted(scene, "abc")
    assert scene.addressed(msg.Assemble) == ["d"]
    given_up(scene.lose("d"), "abc", number=3, late=2, aggregator="d")


def test_a_loss_that_does_not_concern_a_sum_changes_nothing(planned: Planned) -> None:
    scene = granted(planned(Together()), "ab").lose("c")
    assert (routes(scene), len(scene.coordinator.offers.waiting)) == ({}, 0)
    bundled(scene)
    assert identities(scene) == [(0, 1), (1, 1)]


def test_of_several_sums_only_that_of_the_lost_worker_is_given_up(planned: Planned) -> None:
    scene = granted(granted(planned(Together("c"), names="abcd"), "ac"), "bd", at=1.25).lose("d")
    bundled(scene, 1, "c")
    assert identities(scene) == [(0, 1), (2, 1)]
    bundled(scene, 2, "c")
    assert identities(scene) == [(0, 1), (2, 1)]
    assert straight(scene.fire(TRANSFERS, at=1.5), "b")


def test_where_a_way_is_idle_the_others_are_sent_at_once(planned: Planned) -> None:
    planner = Together()
    scene = granted(planned(planner))
    planner.idle = True
    assert straight(scene.lose("b"), "ac")


def test_of_what_is_given_up_the_planner_expects_nothing(planned: Planned) -> None:
    planner = Together()
    scene = granted(planned(planner)).lose("a")
    assert set(planner.settled) == {1, 2, 3}
    assert (len(scene.coordinator.offers.granted), len(scene.coordinator.offers.waiting)) == (0, 2)


@pytest.mark.parametrize(
    ("lasts_s", "due"), [(0.125, 2.125), (1.0, TICK + 4.0), (math.inf, 2.125)], ids=["short", "long", "unknown"]
)
def test_a_sum_that_does_not_come_in_time_is_given_up(planned: Planned, lasts_s: float, due: float) -> None:
    scene = granted(planned(Together(lasts_s=lasts_s)))
    assert alarms(scene) == [due]
    scene.fire(TRANSFERS, at=due - 0.0625)
    assert (routes(scene), len(scene.coordinator.offers.granted)) == ({}, 3)
    scene.fire(TRANSFERS, at=due)
    assert (alarms(scene), len(scene.coordinator.offers.waiting)) == ([due + TICK_S], 3)
    given_up(scene, "abc")


def test_a_sum_that_comes_just_in_time_is_committed(planned: Planned) -> None:
    scene = bundled(granted(planned(Together())), at=2.0).fire(TRANSFERS, at=2.125)
    assert (identities(scene), routes(scene)) == ([(0, 1), (1, 1), (2, 1)], {})


def test_what_goes_straight_is_not_given_up_after_a_time(planned: Planned) -> None:
    scene = granted(planned(Together(None)))
    assert alarms(scene) == []
    scene.fire(TRANSFERS, at=99.0)
    assert (routes(scene), len(scene.coordinator.offers.granted)) == ({}, 3)


@pytest.fixture
def suspecting(planned: Planned) -> Any:
    """Return a run whose aggregator b has not done what it was asked for; a and c have gone on since."""
    scene = granted(planned(Together())).fire(TRANSFERS, at=2.125).fire(TRANSFERS, at=2.25)
    assert straight(scene, "abc")
    return scene.announce("a").announce("c")


def test_who_did_not_sum_in_time_is_not_asked_again(suspecting: Any) -> None:
    planner = suspecting.coordinator.transfers._planner
    granted(suspecting, "ac", at=3.0)
    assert planner.able == ["a", "c"]
    assert straight(suspecting, "ac")
    assert suspecting.sent(msg.Assemble) == []


def test_others_are_asked_instead(suspecting: Any) -> None:
    suspecting.coordinator.transfers._planner.aggregator = "c"
    granted(suspecting, "ac", at=3.0)
    assert suspecting.addressed(msg.Assemble) == ["c"]
    assert {one.aggregator for one in suspecting.sent(msg.Route)} == {"c"}


def test_once_it_is_heard_of_again_it_is_asked(suspecting: Any) -> None:
    suspecting.announce("b")
    granted(suspecting, "abc", at=3.0)
    assert suspecting.coordinator.transfers._planner.able == ["a", "b", "c"]
    assert suspecting.addressed(msg.Assemble) == ["b"]


def test_a_sum_that_came_too_late_shows_that_its_aggregator_lives(suspecting: Any) -> None:
    before = identities(suspecting)
    bundled(suspecting)
    assert identities(suspecting) == before
    assert suspecting.sent(msg.Assemble) == [msg.Assemble(1, 0, (), 2, 1)], "and that it is over"
    granted(suspecting, "ac", at=3.0)
    assert suspecting.addressed(msg.Assemble) == ["b"]


def test_what_was_to_be_summed_once_goes_by_itself_with_all_that_is_granted_beside_it(planned: Planned) -> None:
    scene = granted(planned(Together()), "ab").lose("a")
    offer(scene, "c", at=TICK)
    scene.fire(TRANSFERS, at=1.25)
    assert straight(scene, "bc")


def test_the_next_gradient_of_who_went_by_itself_is_summed_again(planned: Planned) -> None:
    scene = granted(planned(Together())).lose("a").fire(TRANSFERS, at=1.25).announce("b").announce("c")
    granted(scene, "bc", at=2.0)
    assert {one.aggregator for one in scene.sent(msg.Route)} == {"b"}


def test_a_gradient_that_comes_straight_voids_the_sum_that_it_was_for(planned: Planned) -> None:
    """A coordinator that is gone had told its worker so."""
    planner = Together()
    scene = granted(planned(planner)).announce("a")
    assert identities(scene) == [(0, 1)]
    assert set(planner.settled) == {1, 2, 3}
    assert planner.arrived == []
    bundled(scene)
    assert identities(scene) == [(0, 1)]
    scene.fire(TRANSFERS, at=1.25)
    assert routes(scene) == {"b": msg.Route(1, 1, 2), "c": msg.Route(1, 1, 2)}


# --- clipping and checkpoints ---


@pytest.mark.parametrize(("squared", "factor"), [(4.0, 0.5), (1.0, 1.0)])
def test_each_update_of_a_sum_may_have_the_norm_that_is_clipped_to(
    planned: Planned, squared: float, factor: float
) -> None:
    scene = bundled(granted(planned(Together(), clip_norm=1.0)))
    assert [one.clip for one in scene.sent(msg.Commit)] == [True]
    scene.handle(msg.Gathered(0, 1, 1, (squared,)))
    assert [one.factor for one in scene.sent(msg.Proceed)] == [pytest.approx(factor, abs=1e-5)]
    assert scene.sent(msg.Proceed)[0].factor == clipping_factor(squared, 1.0)


def test_a_mean_of_what_was_summed_is_clipped_like_any_mean(planned: Planned) -> None:
    scene = bundled(granted(planned(Together(), BulkSynchronous(), clip_norm=1.0)))
    scene.handle(msg.Gathered(0, 1, 1, (16.0,)))
    assert [one.factor for one in scene.sent(msg.Proceed)] == [clipping_factor(16.0, 1.0)]


def test_checkpoints_count_the_updates_of_sums(planned: Planned) -> None:
    scene = planned(Together(), cuts=Cuts(every_updates=4, ends=False))
    cuts = []
    for round_ in range(1, 6):
        bundled(granted(scene, at=float(round_)), round_)
        (commit,) = scene.sent(msg.Commit)
        cuts.append((commit.version, bool(commit.cut)))
        if commit.cut:
            scene.handle(msg.Written(0, commit.cut, commit.position, {}))
            (seal,) = scene.asked(Seal)
            assert (seal.version, seal.state["version"], seal.state["positions"]) == (round_ * 3, round_ * 3, [round_])
            assert seal.state["samples_applied"] == round_ * 12
            scene.handle(CheckpointSealed(commit.cut, 80))
    assert cuts == [(3, False), (6, True), (9, False), (12, True), (15, False)]


# --- policies ---


class Counting(Asynchronous):
    """Does not say that it takes sums."""

    @property
    def traits(self) -> Any:
        given = super().traits
        return type(given)(exact=given.exact, wakes=given.wakes)


def test_a_policy_takes_no_sums_unless_it_says_so(planned: Planned) -> None:
    with pytest.raises(ConfigurationError, match="takes no sums of gradients"):
        planned(Together(), Counting())
    planned(Together(sums=False), Counting())


def test_of_our_policies_those_take_sums_that_go_by_each_gradient_alone(planned: Planned) -> None:
    taken = []
    for name in policy_names():
        policy = make_policy(name, {})
        if policy.traits.scope is Scope.MODEL:
            planned(Together(sums=False), policy)
        try:
            planned(Together(), policy)
        except ConfigurationError:
            continue
        taken.append(name)
    assert sorted(taken) == ["asp", "bsp", "delay-bounded", "ssp"]


# --- takeovers ---


def settled(scene: Any, *, term: int = 2, commits: tuple[msg.Commit, ...] = ()) -> Any:
    """Let the server of the only shard and every worker tell a new coordinator what they know."""
    state = scene.coordinator.state
    position = commits[-1].position if commits else state.commit_logs[0].position
    members = [(one.name, one.sequence, one.counter) for one in state.roster.members()]
    scene.handle(msg.ServerState(0, "server-0", term, 1, True, position, commits))
    for name, sequence, counter in members:
        scene.handle(msg.WorkerState(term, name, sequence, counter, None, (), False))
    return scene


def decided(bundle: Bundle | None, *sequences: int, updates: int = 1, position: int = 1) -> msg.Commit:
    """Return what a lost coordinator has decided."""
    return msg.Commit(1, 1, position, updates, of_bundle(bundle, *sequences), 0.5, updates=updates)


def test_a_sum_that_a_lost_coordinator_had_asked_for_counts_for_nothing(planned: Planned) -> None:
    scene = settled(granted(planned(Together())).take_over(at=1.5))
    bundled(scene, at=1.5)
    assert (scene.logged("commit"), scene.logged("gradient"), scene.sent(msg.Release)) == ([], [], [])
    assert len(scene.coordinator.offers.waiting) == 3


def test_one_that_is_heard_of_before_the_takeover_is_over_counts_for_nothing_either(planned: Planned) -> None:
    scene = granted(planned(Together())).take_over(at=1.5)
    bundled(scene)
    settled(scene)
    assert scene.logged("commit") == []
    assert len(scene.coordinator.offers.waiting) == 3


def test_what_is_offered_again_after_a_takeover_is_granted_anew(planned: Planned) -> None:
    scene = settled(granted(planned(Together())).take_over(at=1.5))
    offer(scene, "abc", at=1.5)
    assert len(scene.coordinator.offers.waiting) == 3
    scene.fire(TRANSFERS, at=1.625)
    assert routes(scene) == dict.fromkeys("abc", msg.Route(2, 1, 2, "b"))
    assert scene.sent(msg.Assemble) == [msg.Assemble(2, 2, of_bundle(None, 1, 1, 1), 2, 2)]
    bundled(scene)
    assert scene.logged("commit") == [], "nor of the same number as one of now, if its term is another"
    bundled(scene, 2, term=1)
    assert scene.logged("commit") == []
    bundled(scene, 2, term=2)
    assert [(one["version"], one["versions"]) for one in scene.logged("commit")] == [(3, 3)]


def test_an_aggregator_is_told_when_every_shard_shows_its_sum(planned: Planned) -> None:
    scene = bundled(granted(planned(Together())))
    assert scene.sent(msg.Assemble) == []
    scene.handle(msg.Applied(0, 1, 1, 3, ()), at=1.6)
    assert scene.addressed(msg.Assemble) == ["b"]
    assert scene.sent(msg.Assemble) == [msg.Assemble(1, 0, (), 2, 1)]
    scene.handle(msg.Applied(0, 1, 1, 3, ()), at=1.7)
    assert scene.sent(msg.Assemble) == [], "once"


def test_a_coordinator_that_took_over_says_what_is_over_when_it_knows(planned: Planned) -> None:
    """Not before: a commit that it has not heard of yet may be of any sum."""
    scene = granted(planned(Together())).take_over(at=1.5)
    bundled(scene)
    assert scene.sent(msg.Assemble) == []
    scene.handle(msg.ServerState(0, "server-0", 2, 1, True, 0, ()))
    assert sorted(scene.addressed(msg.Assemble)) == ["a", "b", "c"]
    assert set(scene.sent(msg.Assemble)) == {msg.Assemble(2, 0, (), 2, 2)}


def test_the_planner_expects_nothing_that_a_lost_coordinator_had_summed(planned: Planned) -> None:
    scene = granted(planned(Together())).take_over(at=1.5)
    assert sorted(scene.coordinator.transfers._planner.settled) == [1, 2, 3]


def test_of_a_gradient_that_comes_straight_after_a_takeover_nothing_more_is_planned(planned: Planned) -> None:
    scene = settled(granted(planned(Together())).take_over(at=1.5)).announce("a")
    assert identities(scene) == [(0, 1)]
    scene.fire(TRANSFERS, at=1.625)
    assert scene.coordinator.transfers._planner.planned[-1] == ["b", "c"]


def test_a_sum_that_a_lost_coordinator_had_committed_is_adopted_with_all_its_versions(planned: Planned) -> None:
    bundle = Bundle("b", 1, 1)
    scene = granted(planned(Together())).take_over(at=1.5)
    settled(scene, commits=(decided(bundle, 1, 1, 1, updates=3),))
    (record,) = scene.logged("commit")
    assert (record["position"], record["version"], record["versions"]) == (1, 3, 3)
    assert (record["staleness"], record["bundles"], record["rate"]) == ([0, 1, 2], [1, 1, 1], 0.5)
    assert [one["slot"] for one in scene.logged("gradient")] == [0, 1, 2]
    again = [one.message for one in scene.all_sent if isinstance(one.message, msg.Commit)]
    assert {(one.term, one.position, one.version, one.updates) for one in again} == {(2, 1, 3, 3)}
    assert {one.contributions for one in again} == {of_bundle(bundle, 1, 1, 1)}
    assert scene.coordinator.offers.waiting == scene.coordinator.offers.granted == {}
    releases = [one for one in scene.all_sent if isinstance(one.message, msg.Release) and one.message.term == 2]
    assert {(one.to.name, one.message.sequence, one.message.version) for one in releases} == {
        (name, 2, 3) for name in "abc"
    }


def test_of_what_was_adopted_nothing_counts_again(planned: Planned) -> None:
    scene = granted(planned(Together())).take_over(at=1.5)
    settled(scene, commits=(decided(Bundle("b", 1, 1), 1, 1, 1, updates=3),))
    bundled(scene)
    assert offer(scene, "a", sequence=1).sent(msg.Drop) == [msg.Drop(2, 1)]
    scene.announce("b", sequence=1)
    assert identities(scene) == [(0, 1), (1, 1), (2, 1)]


def test_a_sum_of_which_only_a_server_has_heard_is_adopted(planned: Planned) -> None:
    scene = settled(planned(Together()).take_over(at=1.5), commits=(decided(Bundle("b", 1, 1), 1, 1, 1, updates=3),))
    (record,) = scene.logged("commit")
    assert (record["version"], record["versions"], record["bundles"]) == (3, 3, [1, 1, 1])
    assert scene.coordinator.state.samples_applied == 12


def test_a_round_of_sums_that_a_lost_coordinator_had_committed_is_adopted(planned: Planned) -> None:
    bundle = Bundle("b", 1, 1)
    scene = bundled(granted(planned(Together(), BulkSynchronous()), "ab")).take_over(at=1.5)
    given = decided(bundle, 1, 1, 1)
    given = msg.Commit(1, 1, 1, 1, (*given.contributions[:2], Contribution("c", 2, 1)), 0.5)
    settled(scene, commits=(given,))
    (record,) = scene.logged("commit")
    assert (record["version"], record["versions"]) == (1, 1)
    assert (record["bundles"], record["staleness"]) == ([1, 1, 0], [0, 0, 0])
    assert scene.coordinator.state.pooled == 0


def test_commits_behind_an_adopted_sum_have_the_versions_behind_its(planned: Planned) -> None:
    scene = planned(Together()).take_over(at=1.5)
    second = msg.Commit(1, 1, 2, 4, (Contribution("a", 0, 2),), 0.5)
    settled(scene, commits=(decided(Bundle("b", 1, 1), 1, 1, 1, updates=3), second))
    found = [(one["position"], one["version"], one["versions"]) for one in scene.logged("commit")]
    assert found == [(1, 3, 3), (2, 4, 1)]


def test_an_unknown_commit_before_a_known_sum_has_the_versions_that_are_left_for_it(planned: Planned) -> None:
    """A shard was let pass over it, so that nobody knows what it was made of."""
    scene = planned(Together()).take_over(at=1.5)
    passed = msg.Commit(1, 1, 2, 5, (), 0.0)
    third = msg.Commit(1, 1, 3, 8, of_bundle(Bundle("b", 1, 9), 4, 4, 4), 0.5, updates=3)
    settled(scene, commits=(passed, third))
    found = [(one["position"], one["version"], one["slots"]) for one in scene.logged("commit")]
    assert found == [(1, 4, []), (2, 5, []), (3, 8, [0, 1, 2])]


def forestalled(scene: Any) -> Any:
    """Let a be in a sum with b, and then tell that it was released on a version that nobody knows any more.

    Its offer has overtaken what it says of its state.
    """
    scene.take_over(at=1.5).handle(msg.ServerState(0, "server-0", 2, 1, True, 0, ()))
    scene.handle(msg.WorkerState(2, "b", 1, 0, None))
    offer(offer(scene, "b", at=1.5), "a", label=1).fire(TRANSFERS, at=1.625)
    assert {one.aggregator for one in scene.sent(msg.Route)} == {"b"}
    scene.handle(msg.WorkerState(2, "a", 1, 1, None))
    assert (scene.addressed(msg.Abort), scene.sent(msg.Abort)) == (["a"], [msg.Abort(2, 1)])
    return scene


def test_a_sum_with_a_gradient_that_its_worker_was_told_to_abort_counts_for_nothing(planned: Planned) -> None:
    scene = bundled(forestalled(planned(Together(), names="ab")), 1, term=2)
    assert scene.logged("commit") == []
    scene.handle(msg.Aborted("a", 1, 0.0))
    assert straight(scene.fire(TRANSFERS, at=1.75), "b")


def test_a_sum_that_comes_after_the_next_offer_of_who_was_to_abort_counts_for_nothing(planned: Planned) -> None:
    """What confirms the abort is still on its way."""
    # BUG? KeyError in Transfers.on_bundled: `_take` forgets the offer before, and its bundle is expected all the same.
    scene = forestalled(planned(Together(), names="ab"))
    offer(scene, "a", at=1.7)
    bundled(scene, 1, term=2)
    assert (0, 1) not in identities(scene)
    assert scene.coordinator.state.roster.by_name["b"].busy
