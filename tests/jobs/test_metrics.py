"""A job names what evaluations measure, in every way that makes sense; the rest is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.metrics import Metric, metrics_of
from psplatform.jobs.planning import watch_of

GIVEN: dict[str, Any] = {"model": list, "data": [1, 2], "loss": min}


def error_rate(outputs: Any, targets: Any) -> float:
    return 0.0


class Accumulating:
    """What torchmetrics hands out looks like this."""

    higher_is_better = False
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return Accumulating()

    def update(self, outputs: Any, targets: Any) -> None: ...

    def compute(self) -> float:
        return 0.0

    def reset(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "better"),
    [
        (None, {}),
        ("f1", {"f1": "higher"}),
        ("f1, perplexity", {"f1": "higher", "perplexity": "lower"}),
        (["accuracy", error_rate], {"accuracy": "higher", "error_rate": "higher"}),
        (error_rate, {"error_rate": "higher"}),
        ([Accumulating()], {"Accumulating": "lower"}),
        ({"wrong": Metric(error_rate, better="lower")}, {"wrong": "lower"}),
        ([Metric(error_rate, better="lower"), Metric("f1")], {"error_rate": "lower", "f1": "higher"}),
        ({"F1 macro": "f1"}, {"F1 macro": "higher"}),
        ({"top": {"measure": "f1", "better": "lower"}}, {"top": "lower"}),
    ],
)
def test_metrics_are_given_by_name_in_lists_and_in_mappings(given: Any, better: dict[str, str]) -> None:
    found = metrics_of(given)
    assert {name: one.better for name, one in found.items()} == better


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("f2", r'there is no metric "f2"; choose from accuracy, f1'),
        ({"wrong": 3}, "a metric cannot be 3; give a function"),
        ({"wrong": Accumulating}, r"class Accumulating; hand in one of its objects: Accumulating\(\)"),
        ({"a=b": "f1"}, "'a=b' cannot be the name of a metric"),
        ({1: "f1"}, "1 cannot be the name"),
        ([lambda outputs, targets: 0.0, lambda outputs, targets: 1.0], 'two metrics are called "lambda"'),
        ({"loss": error_rate}, 'cannot be called "loss"'),
        ({"accuracy": error_rate}, 'cannot be called "accuracy"'),
        ({"f1": {"worse": 1}}, 'has no "worse"; it has measure and better'),
        ({"f1": {"measure": "f1", "better": "up"}}, "better must be 'higher' or 'lower', not 'up'"),
    ],
)
def test_what_is_no_metric_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Job(**GIVEN, metrics=given)
    assert caught.value.field == "metrics"


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"watch": "f1"}, "watch", 'nothing measures "f1"'),
        ({"metrics": "f1", "watch": "f2"}, "watch", r"choose from .*; name others in metrics"),
        ({"stop": Stop(targets={"f1": 0.9})}, "stop.targets", 'nothing measures "f1"'),
        ({"stop": Stop(patience=2), "evaluate_every": None}, "evaluate_every", "patience counts evaluations"),
        ({"metrics": {"f1": Metric()}}, "metrics", 'the measure of "f1" is missing'),
        ({"predict": min}, "predict", "predict belongs to a step"),
        ({"loss": None, "step": min, "metrics": "f1"}, "predict", "give predict="),
        ({"loss": None, "step": min, "watch": "accuracy"}, "stop", "no accuracy to reach"),
        ({"loss": None, "step": min, "stop": Stop(targets={"accuracy": 0.9})}, "stop", "no accuracy to reach"),
        ({"loss": None, "step": min, "predict": 3}, "predict", "predict must be a callable of model and batch, not 3"),
    ],
)
def test_what_cannot_be_measured_is_refused(fields: dict[str, Any], field: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Job(**{**GIVEN, **fields})
    assert caught.value.field == field


def test_a_step_tells_its_loss_and_with_predict_all() -> None:
    step = {**GIVEN, "loss": None, "step": min}
    assert list(Job(**step, metrics="perplexity", watch="perplexity").metrics) == ["perplexity"]
    assert Job(**step, predict=min, metrics="f1", watch="accuracy").watch == "accuracy"


def test_a_task_brings_its_own_and_says_which_are_better() -> None:
    job = Job(task=object(), metrics={"coherence": Metric(better="lower")}, watch="coherence", keep_best=True)
    watch = watch_of(job)
    assert (watch.metric, watch.keep, watch.lower) == ("coherence", True, {"coherence", "loss"})
    with pytest.raises(ConfigurationError, match="the task measures itself"):
        Job(task=object(), metrics="f1")


def test_bundled_metrics_are_kept_in_a_store_and_code_is_given_again() -> None:
    job = Job(workload="digits", metrics="f1,perplexity", watch="f1", keep_best=True, stop=Stop(targets={"f1": 0.9}))
    again = Job.from_plain(job.to_plain())
    assert (again.metrics, again.watch, again.keep_best, again.stop) == (job.metrics, "f1", True, job.stop)
    plain = Job(workload="digits", metrics=[error_rate]).to_plain()
    assert plain["callables"] == ["metrics"]
    with pytest.raises(ConfigurationError, match="give metrics again"):
        Job.from_plain(plain)


@pytest.mark.parametrize(
    ("text", "targets"), [("f1=0.9", {"f1": 0.9}), (" f1 = 0.9 , loss=1e-2,", {"f1": 0.9, "loss": 0.01})]
)
def test_targets_are_read_from_text(text: str, targets: dict[str, float]) -> None:
    assert Stop(targets=text).targets == targets  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["f1", "f1=", "=1", "f1=high", "f1=nan"])
def test_text_that_says_no_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Stop(targets=text)  # type: ignore[arg-type]
    assert caught.value.field == "stop.targets"
