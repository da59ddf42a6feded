"""Real gradients summed on their way: what is learned, and that nothing is lost or counted twice whatever fails."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol.names import Role
from psplatform.core.transfers import Fabric, Grant, Offer, TransferPlan
from psplatform.jobs.optimizers import SGD, Optimizer
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.training import TensorArithmetic
from psplatform.memory.world import Ideal
from psplatform.policies.registry import make_policy
from psplatform.simulation.faults.checks.serial import SerialLoop

SEED = 11
Groups = tuple[tuple[int, ...], ...]


@dataclass
class InGroups:
    """Has summed, at each tick, what waits of each group of slots; the first worker of a group that can sums it.

    Groups of one, and those of which nobody can sum, go straight.
    """

    groups: Groups
    tick_s: float = 0.125
    sums: bool = True
    relays: ClassVar[bool] = False
    servers: ClassVar[tuple[tuple[str, float], ...]] = ()
    summed: list[tuple[str, ...]] = field(default_factory=list)

    def plan(self, offers: Sequence[Offer], now: float, able: Container[str] | None = None) -> TransferPlan:
        granted = []
        for group in self.groups:
            hosts = [f"w{slot}" for slot in group]
            found = [one for one in offers if one.host in hosts]
            if found:
                summing = [host for host in hosts if able is None or host in able] if len(group) > 1 else []
                aggregator = summing[0] if summing else None
                keys = tuple(one.key for one in found)
                granted.append(Grant(keys, (now,) * len(keys), aggregator, now + 1.0))
                self.summed += [tuple(one.host for one in found)] if aggregator else []
        kept = {key for grant in granted for key in grant.keys}
        return TransferPlan(tuple(granted), (), tuple(one.key for one in offers if one.key not in kept))

    def grant_at_once(self, offer: Offer, now: float, waiting: Iterable[Offer] = ()) -> Grant | float:
        return float("inf")

    def begins(self, now: float) -> dict[int, tuple[float, float]]:
        return {}

    def arrive(self, key: int, host: str, begin: float, end: float) -> None:
        pass

    def seen(self, sender: str, receiver: str, begin: float, end: float) -> None:
        pass

    def serve(self, shard: int, host: str, now: float) -> None:
        pass

    def settle(self, key: int) -> None:
        pass


class Slow(Ideal):
    """Parts take a quarter of a second more for each worker, and a sum, or a gradient, half a second."""

    def part_s(self, member: str, aggregator: str, now: float) -> float:
        return 0.0 if member == aggregator else 0.25 * int(member.strip("w+"))

    def reach_s(self, member: str, shard: int, now: float) -> float:
        return 0.5


@dataclass
class Summing:
    """One training whose gradients are summed on their way."""

    planner: InGroups
    arithmetic: TensorArithmetic
    memory: MemoryRun

    def run(self) -> Summing:
        self.memory.run()
        return self

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return self.memory.of_kind(kind)

    @property
    def applied(self) -> list[tuple[int, int]]:
        """Slot and sequence of each gradient that was applied."""
        commits = self.of_kind("commit")
        return [key for one in commits for key in zip(one["slots"], one["sequences"], strict=True)]


Sums = Callable[..., Summing]


@pytest.fixture
def sums(convolutional: Any) -> Sums:
    """Prepare a training of four workers: ``sums("bsp", ((0, 1), (2, 3))).run()``."""

    def prepare(policy: str, groups: Groups, **given: Any) -> Summing:
        optimizer: Optimizer = given.pop("optimizer", SGD(lr=0.1))
        driven = {name: given.pop(name) for name in ("compute_s", "latency_s", "world", "supervision") if name in given}
        task = convolutional(normalised=given.pop("normalised", False))
        fields: dict[str, Any] = {"workers": 4, "shards": 2, "batch_size": 8, "stop": Stop(updates=6), **given}
        arithmetic = TensorArithmetic(task, optimizer, seed=SEED, shards=fields["shards"], batch_size=8)
        samples = {"samples": arithmetic.samples, "evaluates": arithmetic.evaluates}
        plan, planner = Plan(run="memory", schedule=Constant(), **samples, **fields), InGroups(groups)
        fabric = Fabric(planner, str)
        memory = MemoryRun(plan, make_policy(policy, {}), arithmetic=arithmetic, fabric=fabric, **driven)
        for number in range(plan.workers):
            memory.join(f"w{number}")
        return Summing(planner, arithmetic, memory)

    return prepare


def pace(slot: int, sequence: int) -> float:
    return 1.0 + (slot * 5 + sequence * 3) % 4 / 4


def assert_counts_once(trained: Summing, updates: int) -> None:
    """Check that the run ended after exactly so many updates, of a gradient each, none of which counts twice."""
    finish = trained.memory.finish
    assert finish is not None
    assert (finish.outcome, trained.arithmetic.saved_version) == ("updates", updates)
    assert len(trained.applied) == len(set(trained.applied)) == updates
    assert sum(one["versions"] for one in trained.of_kind("commit")) == updates


def plain(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, foreach=False)


def added(tensors: list[Tensor]) -> Tensor:
    total = tensors[0].clone()
    for one in tensors[1:]:
        total += one
    return total


@dataclass
class ByHand:
    """Trains in one loop; each round is the mean, or the sum, of sums over `groups`."""

    loop: Any
    groups: Groups
    means: bool = True

    def _merged(self, tensors: list[Tensor], *, mean: bool) -> Tensor:
        total = added([added([tensors[slot] for slot in group]) for group in self.groups])
        return total / len(tensors) if mean else total

    def after(self, rounds: int) -> dict[str, Tensor]:
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            model = self.loop.task.model()
            optimizer = self.loop.optimizer(model)
            for number in range(rounds):
                self._round(model, number)
                optimizer.step()
        return {name: tensor.detach() for name, tensor in model.state_dict().items()}

    def _round(self, model: nn.Module, number: int) -> None:
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        gradients, buffers = [], []
        for slot in range(self.loop.workers):
            for name, buffer in model.named_buffers():
                buffer.copy_(before[name])
            gradients.append(self.loop._gradient(model, slot, number))
            buffers.append({name: buffer.clone() for name, buffer in model.named_buffers()})
        for name, parameter in model.named_parameters():
            parameter.grad = self._merged([one[name] for one in gradients], mean=self.means)
        for name, buffer in model.named_buffers():
            found = [one[name] for one in buffers]
            buffer.copy_(self._merged(found, mean=True) if buffer.is_floating_point() else found[0])


GROUPS = pytest.mark.parametrize(
    "groups", [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0,), (1, 2, 3)), ((0, 3), (1,), (2,))], ids=str
)


# --- what is learned ---


@GROUPS
@pytest.mark.parametrize(
    ("optimizer", "by_torch"),
    [(SGD(lr=0.1), plain), (SGD(lr=0.05, momentum=0.9, weight_decay=1e-3), momentum)],
    ids=["sgd", "momentum"],
)
def test_rounds_of_sums_equal_a_serial_loop_that_adds_in_the_same_order(
    sums: Sums, serial: Any, assert_equal: Any, convolutional: Any, *, groups: Groups, optimizer: Optimizer,
    by_torch: Any,
) -> None:  # fmt: skip
    trained = sums("bsp", groups, optimizer=optimizer).run()
    assert [one["versions"] for one in trained.of_kind("commit")] == [1] * 6
    assert all(any(one["bundles"]) for one in trained.of_kind("commit"))
    loop = serial(convolutional(), by_torch, 4)
    assert_equal(trained.arithmetic.saved, ByHand(loop, groups).after(6))
    in_a_row = loop.after(6)
    assert any(not torch.equal(one, in_a_row[name]) for name, one in trained.arithmetic.saved.items())


@pytest.mark.parametrize("groups", [((0, 1), (2, 3)), ((0, 2), (1, 3))], ids=str)
def test_running_statistics_are_the_mean_over_all_that_were_summed(
    sums: Sums, serial: Any, assert_equal: Any, convolutional: Any, groups: Groups
) -> None:
    """Counters count rounds."""
    trained = sums("bsp", groups, normalised=True).run()
    assert trained.arithmetic.saved["norm.num_batches_tracked"] == 6
    assert_equal(trained.arithmetic.saved, ByHand(serial(convolutional(normalised=True), plain, 4), groups).after(6))


@pytest.mark.parametrize("shards", [1, 5])
def test_it_does_not_matter_how_many_shards_a_sum_is_sent_to(sums: Sums, assert_equal: Any, shards: int) -> None:
    one, other = (sums("bsp", ((0, 2), (1, 3)), shards=number, clip_norm=0.5).run() for number in (2, shards))
    assert_equal(other.arithmetic.saved, one.arithmetic.saved)


def test_one_sum_of_all_equals_the_serial_loop(sums: Sums, serial: Any, assert_equal: Any, convolutional: Any) -> None:
    trained = sums("bsp", ((0, 1, 2, 3),)).run()
    assert [one["bundles"] for one in trained.of_kind("commit")] == [[1, 1, 1, 1]] * 6
    assert_equal(trained.arithmetic.saved, serial(convolutional(), plain, 4).after(6))


def test_rounds_of_whatever_is_summed_equal_the_serial_loop_over_the_log(sums: Sums, assert_equal: Any) -> None:
    trained = sums("bsp", ((3, 1, 0), (2,)), world=Slow(pace, latency_s=0.01), clip_norm=0.5).run()
    assert {tuple(one["bundles"]) for one in trained.of_kind("commit")} != {(0, 0, 0, 0)}
    assert_equal(parameters_of(serially(trained, clip=0.5)), trained.arithmetic.visible())


def test_a_sum_of_updates_is_one_step_by_all_of_them(
    sums: Sums, serial: Any, assert_equal: Any, convolutional: Any
) -> None:
    groups = ((0, 1, 2, 3),)
    trained = sums("asp", groups, stop=Stop(updates=12)).run()
    assert [(one["version"], one["versions"]) for one in trained.of_kind("commit")] == [(4, 4), (8, 4), (12, 4)]
    assert [one["staleness"] for one in trained.of_kind("commit")] == [[0, 1, 2, 3]] * 3
    assert_equal(trained.arithmetic.saved, ByHand(serial(convolutional(), plain, 4), groups, means=False).after(3))


# --- how many updates ---


@pytest.mark.parametrize("updates", [1, 4, 10, 11, 23])
@pytest.mark.parametrize("policy", ["asp", "ssp"])
def test_a_run_ends_after_exactly_the_updates_asked_for(sums: Sums, policy: str, updates: int) -> None:
    trained = sums(policy, ((0, 1, 2, 3),), stop=Stop(updates=updates)).run()
    assert_counts_once(trained, updates)
    assert any(one["versions"] > 1 for one in trained.of_kind("commit")) == (updates >= 4)
    assert trained.memory.drain() == []


def test_workers_of_any_pace_are_summed_and_counted_once(sums: Sums) -> None:
    trained = sums("asp", ((0, 1), (2, 3)), stop=Stop(updates=31), world=Slow(pace, latency_s=0.01))
    trained.planner.tick_s = 1.0  # so that they meet
    trained.run()
    assert_counts_once(trained, 31)
    assert {one["versions"] for one in trained.of_kind("commit")} >= {1, 2}


def test_no_more_stale_gradient_than_allowed_is_applied_in_a_sum(sums: Sums) -> None:
    """What is refused of a sum is dropped, and the others are sent again."""
    plan = {"stop": Stop(updates=40), "world": Slow(lambda slot, sequence: 1.0 + 6.0 * (slot == 3), latency_s=0.01)}
    trained = sums("delay-bounded", ((0, 1, 2, 3),), **plan).run()
    assert_counts_once(trained, 40)
    assert max(stale for one in trained.of_kind("commit") for stale in one["staleness"]) < 8
    dropped = [(one["slot"], one["sequence"]) for one in trained.of_kind("dropped") if one["reason"] == "delay"]
    assert dropped
    assert not {*dropped} & {*trained.applied}


def test_each_sample_is_applied_at_most_once_in_an_epoch(sums: Sums) -> None:
    trained = sums("asp", ((0, 1), (2, 3)), deal_epochs=True, stop=Stop(epochs=3), compute_s=pace).run()
    assert trained.memory.finish is not None
    assert trained.memory.finish.outcome == "epochs"
    assert len(trained.applied) == len(set(trained.applied)) >= 18


# --- what fails ---


KILLED = {"the first part is there": 1.25, "two are": 1.5, "the sum is on its way": 2.0, "it has arrived": 2.5}
"""Parts are sent at 1.125 and there at once, at 1.375 and 1.625; their sum is at the servers at 2.125.  It is given up
at 5.125."""


def kept(trained: Summing, slots: Sequence[int]) -> None:
    """Check that of these workers everything is applied that they computed, in their order."""
    for slot in slots:
        found = [sequence for one, sequence in trained.applied if one == slot]
        assert found == list(range(1, found[-1] + 1))


@pytest.mark.parametrize("at", KILLED.values(), ids=KILLED)
@pytest.mark.parametrize("notice_s", [0.0, 0.5, 6.0])
def test_with_the_aggregator_nothing_else_is_lost(sums: Sums, at: float, notice_s: float) -> None:
    supervision = Supervision(notice_s=notice_s)
    trained = sums(
        "asp", ((0, 1, 2),), workers=3, stop=Stop(updates=17), world=Slow(lambda slot, sequence: 1.0),
        supervision=supervision,
    )  # fmt: skip
    trained.memory.kill("w0", at)
    trained.run()
    assert trained.planner.summed[0] == ("w0", "w1", "w2")
    assert_counts_once(trained, 17)
    kept(trained, (1, 2))
    assert [one["slot"] for one in trained.of_kind("lost")] == [0]
    assert ((0, 1) in trained.applied) == (at > 2.125)
    assert trained.memory.drain() == []


@pytest.mark.parametrize("at", [1.25, 1.5, 2.0])
def test_with_a_member_only_its_own_gradient_is_lost(sums: Sums, at: float) -> None:
    trained = sums("asp", ((0, 1, 2),), workers=3, stop=Stop(updates=17), world=Slow(lambda slot, sequence: 1.0))
    trained.memory.kill("w2", at)
    trained.run()
    assert_counts_once(trained, 17)
    kept(trained, (0, 1))
    assert 2 not in {slot for slot, _ in trained.applied}


@pytest.mark.parametrize("at", [1.25, 1.5, 2.0])
@pytest.mark.parametrize("seconds", [0.25, 2.0, 6.0])
def test_what_an_aggregator_that_was_stopped_brings_too_late_does_not_count(
    sums: Sums, at: float, seconds: float
) -> None:
    """It has not been heard of for longer than a sum may take, and goes on then."""
    trained = sums("asp", ((0, 1, 2),), workers=3, stop=Stop(updates=17), world=Slow(lambda slot, sequence: 1.0))
    trained.memory.pause("w0", at, seconds)
    trained.run()
    assert_counts_once(trained, 17)
    kept(trained, (0, 1, 2))
    assert trained.of_kind("lost") == []


@pytest.mark.parametrize("at", KILLED.values(), ids=KILLED)
def test_a_round_whose_aggregator_is_lost_is_made_of_what_the_others_send_again(
    sums: Sums, assert_equal: Any, at: float
) -> None:
    trained = sums("bsp", ((0, 1, 2),), workers=3, stop=Stop(updates=5), world=Slow(lambda slot, sequence: 1.0))
    trained.memory.kill("w0", at)
    trained.run()
    first = trained.of_kind("commit")[0]
    assert first["slots"] == ([0, 1, 2] if at > 2.125 else [1, 2])
    assert len(trained.of_kind("commit")) == 5
    assert len(trained.applied) == len(set(trained.applied))
    assert_equal(parameters_of(serially(trained)), trained.arithmetic.visible())


@pytest.mark.parametrize("at", [1.25, 1.5, 2.0, 2.25])
@pytest.mark.parametrize("policy", ["asp", "bsp"])
def test_with_the_coordinator_nothing_is_lost_that_was_being_summed(sums: Sums, policy: str, at: float) -> None:
    updates = 17 if policy == "asp" else 6
    trained = sums(
        policy, ((0, 1, 2),), workers=3, stop=Stop(updates=updates), world=Slow(lambda slot, sequence: 1.0),
        supervision=Supervision(standby=True, spares=2, notice_s=0.05),
    )  # fmt: skip
    trained.memory.kill("coordinator-1", at)
    trained.run()
    assert [one["role"] for one in trained.of_kind("promoted")] == ["coordinator"]
    assert trained.arithmetic.saved_version == updates
    assert len(trained.applied) == len(set(trained.applied))
    kept(trained, (0, 1, 2))


def test_messages_that_come_twice_or_out_of_order_change_nothing(sums: Sums) -> None:
    delays = iter(range(10**6))

    def deliver(_sender: Role, _to: Role, _message: Any) -> list[float]:
        number = next(delays)
        return [(number * 7 % 5) / 8, (number * 3 % 7) / 8]

    world = Slow(pace, deliver)
    trained = sums("asp", ((0, 1), (2, 3)), stop=Stop(updates=30), world=world)
    trained.planner.tick_s = 1.0
    trained.run()
    assert_counts_once(trained, 30)
    kept(trained, range(4))
    assert any(one["versions"] > 1 for one in trained.of_kind("commit"))


# --- the serial loop over the log ---


def serially(trained: Summing, clip: float | None = None) -> SerialLoop:
    """Do on one shard, with one worker, what the log says of each commit."""
    arithmetic = TensorArithmetic(
        trained.arithmetic._task, trained.arithmetic._optimizer, seed=SEED, batch_size=8, per_block=True
    )
    loop = SerialLoop(arithmetic, clip)
    batches: Any = SimpleNamespace(assignments=dict.fromkeys(trained.applied))
    for record in trained.of_kind("commit"):
        loop.step(record, batches)
    return loop


def parameters_of(loop: SerialLoop) -> dict[str, Tensor]:
    """Return the state without that of the optimiser."""
    return {name: tensor for name, tensor in loop.state.items() if " " not in name}
