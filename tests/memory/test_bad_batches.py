"""Batches whose gradient is not finite, in whole runs in memory: left out after some tries, counted and named."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import psplatform as ps
from psplatform.core.coordination.order.epochs import MOST_TRIES
from psplatform.core.coordination.shards.checkpoints import capture
from psplatform.core.plan import Protection, Stop
from psplatform.errors import BadBatchError, DivergedError
from psplatform.jobs.optimizers import SGD
from psplatform.memory.processes.losses import Supervision
from psplatform.memory.training import TensorArithmetic
from psplatform.replication.accounts import Account
from psplatform.tasks.data.batches import batch_of
from psplatform.tasks.supervised import SupervisedTask
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.words import closing_rows

SEED = 11  # as in conftest
BATCH = 4
COUNT = 24
BAD = 13
RUN = {
    "kind": "run",
    "at": 0.0,
    "run": "r",
    "policy": "p",
    "policy_parameters": {},
    "workers": 1,
    "shards": 1,
    "store": "",
}


class Dealt(TensorArithmetic):
    """Remembers which batch assignment each gradient had."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.assignments: dict[tuple[int, int], Any] = {}

    def compute(self, member: str, effect: Any, seconds: float) -> Any:
        self.assignments[effect.slot, effect.sequence] = effect.assignment
        return super().compute(member, effect, seconds)


def data(*bad: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((COUNT, 3)).astype(np.float32)
    inputs[list(bad)] = np.nan
    return inputs, rng.integers(0, 2, COUNT)


def task(*bad: int) -> SupervisedTask:
    return SupervisedTask(lambda: nn.Linear(3, 2), nn.functional.cross_entropy, data(*bad))


def started(train: Any, given: Any, policy: str = "bsp", **fields: Any) -> Any:
    known = {"workers": 1, "batch_size": BATCH, "sampling": "epoch", "tries": MOST_TRIES, "stop": Stop(epochs=3)}
    pace = {"compute_s": lambda slot, sequence: 1.0 + slot / 4}
    kills = fields.pop("kills", ())
    run = train(given, policy, kind=Dealt, **pace, **{**known, **fields})
    for name, at in kills:
        run.kill(name, at=at)
    return run.run()


def applied_samples(run: Any) -> Counter[tuple[int, int]]:
    """Count how often each sample of each epoch entered an applied gradient."""
    found: Counter[tuple[int, int]] = Counter()
    for commit in run.of_kind("commit"):
        for key in zip(commit["slots"], commit["sequences"], strict=True):
            assignment = run.arithmetic.assignments[key]
            batch = batch_of(SEED, *key, assignment, COUNT, BATCH)
            found.update((assignment.epoch, int(index)) for index in batch.indices)
    return found


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    "policy", ["bsp", "backup", "asp", "ssp", "dssp", "elastic-bsp", "delay-bounded", "dbw", "cutoff"]
)
def test_a_sample_that_is_not_finite_costs_its_batch_and_nothing_else(train: Any, policy: str, workers: int) -> None:
    """In each epoch, every sample outside its batch enters exactly one applied gradient."""
    run = started(train, task(BAD), policy, workers=workers, shards=2, stop=Stop(epochs=6))
    assert (run.finish.outcome, run.finish.failure) == ("epochs", None)
    bad = {one["epoch"]: one for one in run.of_kind("bad batch")}
    assert len(bad) >= 4, "the last ones may not have had their tries when the run ended"
    samples = applied_samples(run)
    assert max(samples.values()) == 1
    assert all(index != BAD for _, index in samples)
    for epoch in sorted(bad)[:4]:
        assert bad[epoch]["tries"] == MOST_TRIES
        assert (bad[epoch]["samples"], bad[epoch]["tensor"]) == ([BAD], "the input")
        missing = {index for index in range(COUNT) if not samples[epoch, index]}
        assert BAD in missing
        assert len(missing) == bad[epoch]["size"] == BATCH


def test_a_run_says_what_it_left_out_in_log_summary_and_incidents(train: Any) -> None:
    run = started(train, task(BAD), workers=2)
    (first, *_) = [one for one in run.of_kind("dropped") if one["reason"] == "non-finite"]
    assert first["detail"].endswith(f"the input of sample {BAD} is not finite")
    view = RunView()
    for record in [RUN, *run.memory.records]:
        view.apply(record)
    summary = view.to_summary()
    assert summary["bad_batches"] == {"given_up": len(run.of_kind("bad batch")), "samples": {str(BAD): "the input"}}
    texts = [one["text"] for one in summary["incidents"] if one["kind"] == "bad batch"]
    assert texts[0] == f"a batch of {BATCH} samples is left out after 3 tries: the input of sample {BAD} is not finite"
    assert ("left out", f"{len(texts)} batches without a finite gradient; see samples {BAD}") in closing_rows(summary)


def test_a_batch_is_tried_again_only_on_another_version(train: Any) -> None:
    run = started(train, task(BAD))
    labels: dict[Any, list[int]] = {}
    for one in run.of_kind("dropped"):
        labels.setdefault(run.arithmetic.assignments[one["slot"], one["sequence"]], []).append(one["label"])
    assert all(len(set(versions)) == len(versions) for versions in labels.values())


def only_at_first(output: Tensor, target: Tensor) -> Tensor:
    """A loss that is not finite while the model is as it begins, for a sample of large numbers."""
    loss = nn.functional.cross_entropy(output, target)
    return loss * float("nan") if bool((output.detach().abs() > 20).any()) else loss


def test_a_batch_that_a_later_version_can_use_is_used(train: Any) -> None:
    """Its first gradient is not finite, its second is, and no sample is missing."""
    inputs, targets = data()
    inputs[BAD] = 10.0
    model = nn.Linear(3, 2)
    nn.init.constant_(model.weight, 1.0)
    given = SupervisedTask(model, only_at_first, (inputs, targets))
    run = started(train, given, workers=6, optimizer=SGD(lr=0.1, weight_decay=9.0), stop=Stop(epochs=3))
    assert run.finish.outcome == "epochs"
    (dropped,) = [one for one in run.of_kind("dropped") if one["reason"] == "non-finite"]
    assert dropped["detail"].endswith(f"the loss of sample {BAD} is not finite")
    assert not run.of_kind("bad batch")
    samples = applied_samples(run)
    assert all(samples[0, index] == 1 for index in range(COUNT))


def test_several_bad_samples_do_not_end_a_run_whose_data_are_mostly_sound(train: Any) -> None:
    """Not even where whole rounds of gradients are not finite."""
    for policy, workers in (("bsp", 2), ("asp", 2), ("bsp", 4)):
        run = started(train, task(1, 7, 13), policy, workers=workers, stop=Stop(epochs=4))
        assert run.finish.outcome == "epochs"
        assert {index for one in run.of_kind("bad batch") for index in one["samples"]} == {1, 7, 13}


def test_with_replacement_a_bad_batch_is_not_drawn_again(train: Any) -> None:
    run = started(train, task(BAD), sampling="replacement", stop=Stop(updates=40))
    assert run.finish.outcome == "updates"
    assert {one["tries"] for one in run.of_kind("bad batch")} == {1}
    assert run.memory.coordinator.state.samples_given_up == 0


@pytest.mark.parametrize("policy", ["bsp", "asp"])
def test_a_job_can_ask_for_the_end_instead(train: Any, policy: str) -> None:
    run = started(train, task(BAD), policy, workers=2, ends_at_bad_batch=True)
    failure = run.finish.failure
    assert isinstance(failure, BadBatchError)
    assert (failure.samples, failure.tensor) == ((BAD,), "the input")
    assert f"the input of sample {BAD} is not finite; mend or remove such samples, or let the job leave" in str(failure)
    assert "learning rate" not in str(failure)


@pytest.mark.parametrize("policy", ["bsp", "asp", "ssp", "dbw", "cutoff", "elastic-bsp", "psp"])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("sampling", ["epoch", "replacement"])
def test_a_model_that_has_diverged_ends_the_run_with_the_advice_for_that(
    train: Any, policy: str, workers: int, sampling: str
) -> None:
    stop, optimizer = Stop(updates=200), SGD(lr=1e30)
    deep = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    given = SupervisedTask(deep, nn.functional.cross_entropy, data())
    run = started(train, given, policy, workers=workers, sampling=sampling, optimizer=optimizer, stop=stop)
    assert isinstance(run.finish.failure, DivergedError)
    assert not isinstance(run.finish.failure, BadBatchError)
    assert "lower the learning rate or clip the gradient norm" in run.finish.detail
    assert all(torch.isfinite(tensor).all() for tensor in run.result.values())


@pytest.mark.parametrize("policy", ["bsp", "asp", "psp"])
@pytest.mark.parametrize("workers", [1, 3])
def test_data_without_a_finite_batch_end_the_run_and_are_named(train: Any, policy: str, workers: int) -> None:
    run = started(train, task(*range(COUNT)), policy, workers=workers)
    failure = run.finish.failure
    assert isinstance(failure, BadBatchError)
    assert failure.tensor == "the input"
    assert len(failure.samples) == BATCH
    assert "mend or remove such samples" in run.finish.detail
    assert "learning rate" not in run.finish.detail


def test_psp_leaves_a_bad_batch_out_as_well(train: Any) -> None:
    run = started(train, task(BAD), "psp", workers=3, shards=2, stop=Stop(epochs=6))
    assert run.finish.outcome == "epochs"
    assert {tuple(one["samples"]) for one in run.of_kind("bad batch")} == {(BAD,)}


def test_a_recovered_run_keeps_the_counts(train: Any) -> None:
    first = started(train, task(BAD), stop=Stop(updates=7))
    state = capture(first.memory.coordinator.state).to_plain()
    assert state["bad_batches"] == [1, BATCH]
    resumed = started(train, task(BAD), resume=state, stop=Stop(epochs=3))
    total = resumed.memory.coordinator.state.bad_batches
    assert total == 1 + len(resumed.of_kind("bad batch"))
    assert resumed.memory.coordinator.state.epochs_done >= 3


@pytest.mark.parametrize("policy", ["bsp", "asp", "backup"])
@pytest.mark.parametrize("at", [1.1, 2.6, 4.05, 5.3])
def test_counts_outlive_the_coordinator_and_a_server(train: Any, policy: str, at: float) -> None:
    """Nothing is applied twice or left out twice, and only what lay with the bad sample is missing."""
    run = started(
        train,
        task(BAD),
        policy,
        workers=2,
        shards=2,
        stop=Stop(epochs=4),
        kills=(("coordinator-1", at), ("server-0", at + 3.1)),
        latency_s=0.01,
        protection=Protection(1, bound=0),
        make_account=partial(Account, 0.0, 0),
        measures_steps=True,
        supervision=Supervision(spares=6, notice_s=0.05, standby=True),
    )
    assert run.finish.outcome == "epochs"
    assert len(run.of_kind("promoted")) >= 2
    places = [(one["epoch"], one["batch"]) for one in run.of_kind("bad batch")]
    assert len(set(places)) == len(places) >= 2
    assert {one["tries"] for one in run.of_kind("bad batch")} == {MOST_TRIES}
    assert run.memory.coordinator.state.bad_batches == len(places)
    samples = applied_samples(run)
    assert max(samples.values()) == 1
    for epoch, _ in places[:2]:
        missing = {index for index in range(COUNT) if not samples[epoch, index]}
        assert BAD in missing
        assert len(missing) == BATCH


def test_a_simulation_leaves_out_what_the_run_would() -> None:
    given = {"model": nn.Linear(3, 2), "loss": nn.functional.cross_entropy, "data": data(BAD), "batch_size": BATCH}
    job = ps.Job(**given, workers=2, stop=ps.Stop(epochs=6))
    summary = ps.simulate(job, ps.Conditions(compute="constant:seconds=1")).summary()
    assert summary["outcome"] == "epochs"
    assert summary["bad_batches"]["given_up"] >= 4
    assert summary["bad_batches"]["samples"] == {str(BAD): "the input"}
    with pytest.raises(BadBatchError):
        ps.simulate(ps.Job(**given, workers=2, stop=ps.Stop(epochs=6), bad_batches="end"))
