"""Real tensors in memory: what is kept, what fails, and which samples are learned from."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from psplatform.core.plan import Stop
from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.messages import BatchAssignment, Contribution
from psplatform.core.protocol.names import first_server
from psplatform.errors import ConfigurationError, DivergedError, UserCodeError
from psplatform.jobs.optimizers import SGD, Additive
from psplatform.memory.training import TensorArithmetic
from psplatform.tasks.data.sampling import epoch_batch
from psplatform.tasks.seam import Task, Update
from psplatform.tasks.supervised import SupervisedTask

SEED = 11


# --- which samples enter which gradient ---


class Noting(TensorArithmetic):
    """Notes the batch assignment of every gradient."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.assignments: dict[tuple[int, int], BatchAssignment | None] = {}

    def compute(self, member: str, effect: Compute, seconds: float) -> Any:
        self.assignments[effect.slot, effect.sequence] = effect.assignment
        return super().compute(member, effect, seconds)


def applied(trained: Any) -> list[tuple[int, int]]:
    commits = trained.of_kind("commit")
    return [key for one in commits for key in zip(one["slots"], one["sequences"], strict=True)]


def pace(slot: int, sequence: int) -> float:
    return [0.5, 1.0, 1.0, 3.0][(slot * 5 + sequence * 3) % 4]


@pytest.mark.parametrize(
    ("policy", "options"),
    [("bsp", {}), ("asp", {}), ("ssp", {"bound": 1}), ("backup", {"k": 2}), ("backup", {"k": 1, "busy": "abort"})],
    ids=str,
)
def test_every_sample_enters_exactly_one_applied_gradient_per_epoch_whatever_fails(
    train: Any, convolutional: Any, policy: str, options: dict[str, Any]
) -> None:
    """Workers die, leave and join, and late gradients are dropped; 45 samples do not divide into batches of 8."""
    updates = 30
    trained = train(
        convolutional(), policy, options, workers=3, sampling="epoch", compute_s=pace, stop=Stop(updates=updates),
        kind=Noting,
    )  # fmt: skip
    trained.kill("w0", at=2.25).join("x", at=3.75).kill("w1", at=5.1).join("y", at=5.2).kill("x", at=7.3).run()
    assignments = [trained.arithmetic.assignments[key] for key in applied(trained)]
    assert max(Counter(assignments).values()) == 1
    counts: dict[int, Counter[int]] = {}
    for one in assignments:
        indices = epoch_batch(SEED, one.epoch, one.number, 45, 8)
        counts.setdefault(one.epoch, Counter()).update(indices.tolist())
    complete = updates // 6 - 2  # What came back may be applied in the next epoch but one, and nothing later.
    assert complete > 0
    for epoch in range(complete):
        assert counts[epoch] == Counter(range(45))


def test_epochs_end_a_run_after_as_many_samples(train: Any, convolutional: Any) -> None:
    trained = train(convolutional(), workers=1, sampling="epoch", stop=Stop(epochs=2)).run()
    assert trained.finish.detail == "2.00 epochs"
    assert len(trained.of_kind("commit")) == 12


def test_with_replacement_no_batch_is_drawn_twice_for_the_same_slot_whoever_is_in_it(
    train: Any, convolutional: Any
) -> None:
    """A batch is named by slot and sequence, and the next process in a slot continues the sequence."""
    trained = train(convolutional(), "asp", workers=2, stop=Stop(updates=20), kind=Noting)
    trained.kill("w0", at=3.5).join("x", at=4.0).run()
    keys = applied(trained)
    assert len(set(keys)) == len(keys) == 20
    assert set(trained.arithmetic.assignments.values()) == {None}
    of_slot_0 = [sequence for slot, sequence in keys if slot == 0]
    assert of_slot_0 == sorted(set(range(1, of_slot_0[-1] + 1)) - {4})  # 4 died with its worker


# --- what is kept ---


def test_the_version_that_reached_the_target_is_the_one_that_is_kept(
    train: Any, serial: Any, assert_equal: Any, convolutional: Any
) -> None:
    """Evaluating takes as long as two rounds, so the model has moved on by then."""
    task = convolutional(test=True)
    trained = train(task, evaluate_every=2, evaluation_s=2.5, stop=Stop(target_loss=100.0)).run()
    assert trained.finish.outcome == "reached target"
    assert trained.memory.coordinator.state.version > 2
    assert trained.arithmetic.saved_version == 2
    assert_equal(trained.result, serial(task, lambda model: torch.optim.SGD(model.parameters(), lr=0.1), 2).after(2))


def test_without_a_target_the_last_version_is_kept(train: Any, assert_equal: Any, convolutional: Any) -> None:
    trained = train(convolutional(test=True), "asp", shards=2, evaluate_every=2).run()
    assert trained.arithmetic.saved_version == 6
    assert_equal(trained.result, trained.arithmetic.visible())


def test_held_out_data_are_measured(train: Any, convolutional: Any) -> None:
    trained = train(convolutional(test=True), evaluate_every=3).run()
    first, *_, last = trained.of_kind("evaluated")
    assert (first["version"], last["version"]) == (3, 6)
    assert 0 < last["loss"] < 10
    assert 0 <= last["accuracy"] <= 1


# --- what fails ---


def test_the_user_s_error_ends_the_run_with_their_traceback(train: Any) -> None:
    def bad_loss(_output: Tensor, _target: Tensor) -> Tensor:
        raise KeyError("no such class")

    data = (np.zeros((8, 3), dtype=np.float32), np.zeros(8, dtype=np.int64))
    finish = train(SupervisedTask(lambda: nn.Linear(3, 2), bad_loss, data)).run().finish
    assert isinstance(finish.failure, UserCodeError)
    assert "bad_loss" in finish.failure.user_traceback
    assert "KeyError in the user's code while computing gradient 1 of worker 0" in finish.detail


def test_the_user_s_error_in_an_evaluation_ends_the_run_and_the_model_is_kept(train: Any) -> None:
    def bad_test() -> Any:
        raise OSError("held-out data are gone")

    data = (np.zeros((8, 3), dtype=np.float32), np.zeros(8, dtype=np.int64))
    task = SupervisedTask(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, data, bad_test)
    trained = train(task, evaluate_every=1, stop=Stop(updates=50)).run()
    assert isinstance(trained.finish.failure, UserCodeError)
    assert "held-out data are gone" in trained.finish.detail
    assert trained.arithmetic.saved_version >= 1


def test_a_training_that_diverges_is_stopped(train: Any, convolutional: Any) -> None:
    trained = train(convolutional(), optimizer=SGD(lr=1e30), stop=Stop(updates=100)).run()
    assert isinstance(trained.finish.failure, DivergedError)
    assert all(torch.isfinite(tensor).all() for tensor in trained.result.values())


def test_a_task_that_cannot_be_trained_is_refused_before_anything_runs() -> None:
    data = (np.zeros((8, 3), dtype=np.float32), np.zeros(8, dtype=np.int64))
    with pytest.raises(ConfigurationError, match="no trainable parameters"):
        TensorArithmetic(SupervisedTask(nn.Identity, nn.functional.mse_loss, data), SGD())


# --- the member's side ---


def computed(arithmetic: TensorArithmetic, member: str, sequence: int) -> Contribution:
    for shard in range(arithmetic.layout.shards):
        arithmetic.load(member, shard, arithmetic.snapshot(first_server(shard)))
    arithmetic.compute(member, Compute(0, sequence, None), 1.0)
    arithmetic.expose(member, 0, sequence)
    return Contribution(member, 0, sequence)


def step(arithmetic: TensorArithmetic, *contributions: Contribution, version: int = 1) -> None:
    for shard in range(arithmetic.layout.shards):
        arithmetic.gather(first_server(shard), contributions, norms=False)
        arithmetic.stage(first_server(shard), 1.0, 1.0)
        arithmetic.publish(first_server(shard), version)


def opened(arithmetic: TensorArithmetic) -> TensorArithmetic:
    for shard in range(arithmetic.layout.shards):
        arithmetic.open_copy(first_server(shard), shard)
    return arithmetic


@pytest.fixture
def arithmetic(convolutional: Any) -> TensorArithmetic:
    return opened(TensorArithmetic(convolutional(), SGD(lr=0.1), shards=2, batch_size=8, seed=SEED))


def test_a_pulled_content_does_not_change_when_the_shard_does(arithmetic: TensorArithmetic) -> None:
    contents = [arithmetic.snapshot(first_server(shard)) for shard in range(2)]
    before = [{key: vector.clone() for key, vector in one.items()} for one in contents]
    one = computed(arithmetic, "a", 1)
    step(arithmetic, one)
    step(arithmetic, one, version=2)
    for content, kept in zip(contents, before, strict=True):
        assert all(torch.equal(content[key], kept[key]) for key in kept)
    assert not torch.equal(arithmetic.snapshot(first_server(0))["parameter.float32"], before[0]["parameter.float32"])


def test_an_exposed_gradient_outlives_its_worker(arithmetic: TensorArithmetic) -> None:
    one = computed(arithmetic, "a", 1)
    arithmetic.forget("a")
    before = arithmetic.visible()
    step(arithmetic, one)
    assert not torch.equal(arithmetic.visible()["output.bias"], before["output.bias"])


def test_a_gradient_whose_place_was_taken_is_not_to_be_had(arithmetic: TensorArithmetic) -> None:
    """On one host workers have one slab, which the next gradient is written over."""
    first = computed(arithmetic, "a", 1)
    computed(arithmetic, "a", 2)
    assert arithmetic.gather(first_server(0), (first,), norms=False) is None


def test_members_compute_apart_from_each_other(arithmetic: TensorArithmetic) -> None:
    """What one has loaded does not move under it when another loads a newer version."""
    old = computed(arithmetic, "a", 1)
    step(arithmetic, old)
    computed(arithmetic, "b", 1)
    again = arithmetic.compute("a", Compute(0, 1, None), 1.0)
    fresh = opened(TensorArithmetic(arithmetic._task, SGD(lr=0.1), shards=2, batch_size=8, seed=SEED))
    computed(fresh, "a", 1)
    assert again == fresh.compute("a", Compute(0, 1, None), 1.0)


# --- tasks that are no modules ---


class Counting(Task):
    """Adds up how often each of three samples was drawn."""

    samples = 3

    def initial(self) -> dict[str, Tensor]:
        return {"counts": torch.zeros(3)}

    def compute(self, parameters: Any, batch: Any, rng: np.random.Generator) -> Update:
        return Update({"counts": torch.bincount(torch.from_numpy(batch), minlength=3).float()}, loss=0.0)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_task_whose_update_is_no_gradient_is_added(train: Any, shards: int) -> None:
    """Four passes over three samples in batches of two."""
    trained = train(
        Counting(), workers=1, shards=shards, optimizer=Additive(), sampling="epoch", batch_size=2, stop=Stop(epochs=4)
    ).run()
    assert trained.finish.outcome == "epochs"
    assert trained.result["counts"].tolist() == [4.0, 4.0, 4.0]
