"""Servers, replicas and coordinators are lost in real trainings: nothing is lost that was not allowed to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch

from psplatform.core.plan import Protection, Stop
from psplatform.core.shards.replica import Replica
from psplatform.errors import ClusterError
from psplatform.jobs.optimizers import SGD
from psplatform.memory import MemoryRun
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.world import Ideal
from psplatform.policies.registry import policy_names
from psplatform.replication.accounts import Account

UPDATES = 10
CHAIN = partial(Account, 0.0, 0)
FOUR_UPDATES = partial(Account, most_updates=4)


def pace(slot: int, sequence: int) -> float:
    return 1.0 + 0.25 * slot + 0.125 * (sequence % 3)


@pytest.fixture
def protected(train: Any, convolutional: Any) -> Callable[..., Any]:
    """Prepare a training of three workers and two shards, each with a replica; ``standby`` and the like as they are."""

    def prepare(policy: str = "bsp", account: Callable[[], Account] = CHAIN, **given: Any) -> Any:
        watched = {name: given.pop(name) for name in list(given) if name in Supervision.__dataclass_fields__}
        asked = {name: given.pop(name) for name in ("pause", "alone") if name in given}
        protection = Protection(given.pop("replicas", 1), **asked)
        known: dict[str, Any] = {"workers": 3, "shards": 2, "stop": Stop(updates=UPDATES), "latency_s": 0.02}
        supervision = Supervision(**{"spares": 6, "notice_s": 0.05, **watched})
        return train(
            convolutional(count=24),
            policy,
            optimizer=SGD(lr=0.05, momentum=0.9),
            batch_size=4,
            compute_s=pace,
            protection=protection,
            make_account=account,
            measures_steps=True,
            supervision=supervision,
            **{**known, **given},
        )

    return prepare


def lost(trained: Any) -> list[tuple[int, int]]:
    """Return shard and lost updates of each promotion of a server."""
    return [(one["shard"], one["updates_lost"]) for one in trained.of_kind("promoted") if one["role"] == "server"]


@dataclass
class Watch:
    """Compares every replica with its server after each event, where it is not ahead of what that shows."""

    arithmetic: Any
    shard_bound: float = 0.0
    compared: int = 0
    largest: float = 0.0
    states: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)

    def __call__(self, run: MemoryRun) -> None:
        for server in run.servers:
            shown = self.arithmetic.copies[server.name]
            at = server.shard, server.epoch, server.position
            if at not in self.states:
                self.states[at] = {key: vector.clone() for key, vector in shown.front.items()}
            for name in server.links.in_sync:
                self._compare(run, server, name)

    def _compare(self, run: MemoryRun, server: Any, name: str) -> None:
        replica = run.copies[name].control.part
        if not isinstance(replica, Replica) or replica.epoch != server.epoch or replica.loading:
            return
        held, shown = self.arithmetic.copies[name].front, self.arithmetic.copies[server.name].front
        expected = self.states.get((server.shard, server.epoch, replica.position))
        if expected is not None:
            self.compared += 1
            assert all(torch.equal(held[key], expected[key]) for key in expected), (
                f"{name} is at no state of its server"
            )
        if replica.position > server.position:
            return
        away = [(held[key].double() - shown[key].double()).norm() for key in held if key.startswith("parameter")]
        self.largest = max(self.largest, float(torch.stack(away).norm()))
        assert self.largest <= self.shard_bound


# --- servers ---


@pytest.mark.parametrize("account", [CHAIN, FOUR_UPDATES], ids=["chain", "updates"])
@pytest.mark.parametrize("policy", policy_names())
def test_a_run_ends_as_asked_when_a_server_is_lost(protected: Any, policy: str, account: Any) -> None:
    trained = protected(policy, account)
    trained.memory.lose_server(0, at=1.6)
    trained.memory.lose_server(1, at=2.9)
    trained.run()
    assert trained.finish.outcome == "updates"
    assert [shard for shard, _ in lost(trained)] == [0, 1]
    assert all(torch.isfinite(tensor).all() for tensor in trained.result.values())
    assert trained.memory.drain() == []


@pytest.mark.parametrize("at", [0.5 + 1.13 * step for step in range(12)])
def test_under_chain_the_loss_of_a_server_cannot_be_seen_in_the_result(
    protected: Any, assert_equal: Any, at: float
) -> None:
    """Whenever it happens: what was shown is on the replica, and what was not is computed there from the same."""
    undisturbed = protected().run()
    disturbed = protected()
    disturbed.memory.lose_server(1, at=at)
    disturbed.run()
    assert lost(disturbed) == [(1, 0)]
    assert_equal(disturbed.result, undisturbed.result)


def test_several_servers_are_lost_and_every_sample_is_learned_from_once(protected: Any, assert_equal: Any) -> None:
    undisturbed = protected(sampling="epoch").run()
    disturbed = protected(sampling="epoch")
    for number, at in enumerate((1.3, 3.1, 3.15, 6.6, 9.9)):
        disturbed.memory.lose_server(number % 2, at=at)
    disturbed.run()
    assert len(lost(disturbed)) == 5
    assert_equal(disturbed.result, undisturbed.result)


@pytest.mark.parametrize("policy", ["bsp", "asp", "ssp", "backup"])
def test_a_replica_is_exactly_a_state_of_its_server_and_within_the_bound(protected: Any, policy: str) -> None:
    trained = protected(policy, partial(Account, most_distance=0.2), replicas=2)
    watch = trained.memory.on_event = Watch(trained.arithmetic, 0.2)
    trained.memory.lose_server(0, at=5.05)
    trained.run()
    assert watch.compared > 100
    assert watch.largest > 0


@pytest.mark.parametrize("bound", [0.005, 0.05, 0.5])
def test_what_is_lost_is_no_further_away_than_the_bound(protected: Any, bound: float) -> None:
    for at in (1.31, 2.02, 2.77, 3.4):
        trained = protected("asp", partial(Account, most_distance=bound))
        watch = trained.memory.on_event = Watch(trained.arithmetic, bound)
        trained.memory.lose_server(0, at=at)
        trained.run()
        (promoted,) = trained.of_kind("promoted")
        assert promoted["distance_lost"] is None or promoted["distance_lost"] <= bound
        assert watch.largest <= bound


def test_under_a_bound_of_updates_no_more_than_those_are_lost(protected: Any) -> None:
    found = []
    for step in range(12):
        trained = protected("asp", FOUR_UPDATES)
        trained.memory.lose_server(0, at=2.0 + 0.21 * step)
        trained.run()
        found += [updates for _, updates in lost(trained)]
    assert max(found) <= 4
    assert max(found) > 0, "a bound that nothing ever comes near tests nothing"


def test_a_synchronous_run_computes_again_what_was_computed_on_a_lost_version(protected: Any) -> None:
    trained = protected("bsp", FOUR_UPDATES)
    trained.memory.lose_server(0, at=6.6)
    trained.run()
    (loss,) = trained.of_kind("lost positions")
    commits = [one["position"] for one in trained.of_kind("commit")]
    assert commits == list(range(1, UPDATES + 1))
    assert loss["last"] - loss["first"] + 1 == lost(trained)[0][1]


def test_without_a_replica_the_run_ends_and_names_the_server(protected: Any) -> None:
    trained = protected(spares=0)
    trained.memory.lose_server(0, at=2.0)
    trained.memory.lose_server(0, at=5.0)
    trained.run()
    failure = trained.finish.failure
    assert isinstance(failure, ClusterError)
    assert "the server of shard 0" in str(failure)
    assert "has no replica in sync" in str(failure)
    assert failure.peer is not None
    assert failure.peer.startswith("memory://replica-0")


def test_both_copies_in_one_process_are_no_protection(protected: Any) -> None:
    trained = protected()
    trained.memory.processes.share("replica-1-0", "server-1")
    trained.memory.kill("server-1", at=3.0)
    trained.run()
    assert "the server of shard 1" in trained.finish.detail


# --- replicas ---


def test_a_lost_replica_is_replaced_and_the_shard_is_unprotected_meanwhile(protected: Any, assert_equal: Any) -> None:
    trained = protected().kill("replica-0-0", at=3.0).run()
    assert [one["shards"] for one in trained.of_kind("protection")] == [[0], []]
    assert [one["copy"] for one in trained.of_kind("copy") if one["event"] == "ready"] == ["replica-0-4"]
    assert_equal(trained.result, protected().run().result)


def test_where_nothing_can_replace_a_replica_the_server_goes_on_alone(protected: Any, assert_equal: Any) -> None:
    trained = protected(spares=0).kill("replica-0-0", at=3.0).run()
    assert trained.finish.outcome == "updates"
    assert [one["shards"] for one in trained.of_kind("protection")] == [[0]]
    assert any("no new replica of shard 0" in one["text"] for one in trained.of_kind("note"))
    assert_equal(trained.result, protected().run().result)


def test_told_to_pause_a_server_shows_nothing_until_it_has_a_replica_again(protected: Any) -> None:
    trained = protected(pause=True, spares=0).kill("replica-0-0", at=3.0)
    trained.memory.agenda.enter_at(20.0, lambda: trained.memory.reinforce(1))
    trained.run()
    times = [one["at"] for one in trained.of_kind("applied")]
    assert not [at for at in times if 3.5 < at < 20.0]
    assert max(times) > 20.0
    assert trained.finish.outcome == "updates"


@pytest.mark.parametrize("replicas", [1, 2])
def test_told_to_pause_a_promoted_server_shows_nothing_until_it_has_a_replica(
    protected: Any, assert_equal: Any, replicas: int
) -> None:
    """As one does that has lost its replica: what it shows alone would be lost with it."""
    trained = protected(pause=True, spares=0, replicas=replicas).kill("server-0", at=3.0)
    if replicas == 2:  # the other one is lost before the new server has brought it in sync
        trained.kill("replica-0-1", at=3.0)
    trained.memory.agenda.enter_at(20.0, lambda: trained.memory.reinforce(replicas))
    trained.run()
    risen = trained.of_kind("promoted")[0]["at"]
    times = [one["at"] for one in trained.of_kind("applied")]
    assert not [at for at in times if risen < at < 20.0]
    assert max(times) > 20.0
    assert trained.finish.outcome == "updates"
    assert_equal(trained.result, protected().run().result)


@pytest.mark.parametrize("taken_over", [False, True])
def test_told_to_pause_a_run_that_ends_makes_the_replica_that_a_promoted_server_waits_for(
    protected: Any, *, taken_over: bool
) -> None:
    """Its last commit is decided and cannot be shown before; whoever leads the run knows that."""
    trained = protected(pause=True, standby=True, spares=0, stop=Stop(updates=2)).kill("server-0", at=3.0)
    if taken_over:
        trained.kill("coordinator-1", at=3.1)
    trained.memory.agenda.enter_at(20.0, lambda: trained.memory.reinforce(1))
    trained.run()
    assert trained.finish.outcome == "updates"
    assert trained.of_kind("commit")[-1]["at"] < 20.0 < trained.of_kind("applied")[-1]["at"]


def test_with_two_replicas_a_second_server_may_be_lost_before_anything_is_replaced(
    protected: Any, assert_equal: Any
) -> None:
    trained = protected(replicas=2, spares=0)
    trained.memory.lose_server(0, at=3.0)
    trained.memory.lose_server(0, at=6.0)
    trained.run()
    assert lost(trained) == [(0, 0), (0, 0)]
    assert_equal(trained.result, protected().run().result)


def test_a_replica_that_is_lost_with_its_server_leaves_the_other(protected: Any, assert_equal: Any) -> None:
    trained = protected(replicas=2)
    trained.memory.processes.share("replica-0-0", "server-0")
    trained.kill("server-0", at=4.4).run()
    assert trained.finish.outcome == "updates"
    assert_equal(trained.result, protected().run().result)


# --- coordinators ---


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("together", [False, True], ids=["alone", "with a server"])
def test_a_standby_takes_over_from_a_lost_coordinator(protected: Any, policy: str, *, together: bool) -> None:
    trained = protected(policy, FOUR_UPDATES, standby=True)
    if together:
        trained.memory.processes.share("coordinator-1", "server-0")
    trained.kill("coordinator-1", at=1.6).kill("w1", at=2.1).join("late", at=2.4).run()
    assert trained.finish.outcome == "updates"
    assert trained.memory.leads[-1].lead.term == 2
    assert "coordinator" in [one["role"] for one in trained.of_kind("promoted")]
    assert trained.memory.drain() == []


@pytest.mark.parametrize("at", [0.1 + 1.31 * step for step in range(10)])
def test_the_loss_of_a_coordinator_cannot_be_seen_in_the_result(protected: Any, assert_equal: Any, at: float) -> None:
    undisturbed = protected(sampling="epoch").run()
    disturbed = protected(sampling="epoch", standby=True).kill("coordinator-1", at=at).run()
    assert disturbed.memory.leads[-1].lead.term == 2
    assert_equal(disturbed.result, undisturbed.result)
    commits = [one["position"] for one in disturbed.of_kind("commit")]
    assert commits == list(range(1, UPDATES + 1))


def test_every_coordinator_in_turn_may_be_lost(protected: Any, assert_equal: Any) -> None:
    trained = protected(standby=True)
    for at in (2.2, 5.5, 8.8):
        trained.memory.agenda.enter_at(at, lambda: trained.memory.losses.kill(trained.memory.leads[-1].name))
    trained.run()
    assert trained.memory.leads[-1].lead.term > 3
    assert_equal(trained.result, protected().run().result)


@pytest.mark.parametrize("also", ["standby-2", "standby-1-3"], ids=["first", "second"])
def test_with_two_replicas_a_coordinator_may_be_lost_with_a_standby(
    protected: Any, assert_equal: Any, also: str
) -> None:
    """As many losses as replicas are survived, whichever of the two would have taken over."""
    trained = protected(standby=True, replicas=2).kill("coordinator-1", at=3.3).kill(also, at=3.3).run()
    assert trained.finish.outcome == "updates"
    assert trained.memory.leads[-1].lead.term == (3 if also == "standby-2" else 2)
    assert_equal(trained.result, protected().run().result)
    assert len(trained.memory.standbys.successors) == 2, "both were replaced"


# --- isolation ---


class CutOff:
    """A world in which the scheduler does not hear the coordinator until a time; everything else takes no time."""

    def __init__(self, until: float) -> None:
        self._ideal, self._until = Ideal(pace, lambda sender, to, message: [0.0]), until

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        return max(0.0, self._until - now), 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ideal, name)


@pytest.mark.parametrize("alone", [False, True], ids=["wait", "continue"])
def test_a_server_that_lost_its_replica_waits_until_the_scheduler_is_heard(protected: Any, *, alone: bool) -> None:
    """Its coordinator may be the one that is cut off; unless the job says that it goes on all the same."""
    trained = protected(alone=alone, spares=0, world=CutOff(20.0)).kill("replica-0-0", at=3.0).run()
    times = [one["at"] for one in trained.of_kind("applied")]
    assert trained.finish.outcome == "updates"
    assert bool([at for at in times if 4.5 < at < 20.0]) == alone
    assert (max(times) > 20.0) != alone
