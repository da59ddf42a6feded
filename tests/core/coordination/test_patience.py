"""A run ends at a metric's target, and when the metric that it watches gets no better."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination.shards.checkpoints import capture, restore
from psplatform.core.plan import Stop
from psplatform.core.protocol.effects import Evaluate
from psplatform.core.protocol.events import Evaluated
from psplatform.core.quality import Progress, Watch
from psplatform.errors import ConfigurationError

Open = Callable[..., Any]


def running(open_scene: Open, **given: Any) -> Any:
    return open_scene(evaluates=True, evaluate_every=1, **given).join("a")


def evaluate(scene: Any, *losses: float, **more: Any) -> Any:
    for loss in losses:
        order = scene.announce("a").asked(Evaluate)[-1]
        scene.show().handle(Evaluated(order.version, loss, None, **more))
    return scene


def test_patience_ends_the_run_after_so_many_evaluations_that_were_not_better(open_scene: Open) -> None:
    scene = running(open_scene, stop=Stop(patience=2))
    evaluate(scene, 1.0, 0.8, 0.9)
    assert not scene.coordinator.state.stopping
    evaluate(scene, 0.8)
    finish = scene.end().finish
    assert finish.outcome == "patience"
    assert finish.detail == "loss was not better than 0.8000 in 2 evaluations; version 2 is the best"


def test_a_loss_that_is_not_finite_uses_patience_up(open_scene: Open) -> None:
    scene = evaluate(running(open_scene, stop=Stop(patience=2)), float("nan"), float("nan"))
    assert scene.end().finish.detail == "loss was not finite in 2 evaluations"


def test_patience_with_what_the_task_does_not_measure_fails_and_says_so(open_scene: Open) -> None:
    scene = evaluate(running(open_scene, stop=Stop(patience=2), watch=Watch("accuracy")), 0.5)
    failure = scene.end().finish.failure
    assert isinstance(failure, ConfigurationError)
    assert "patience waits for accuracy, but evaluations of this task give loss; name one" in str(failure)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"stop": Stop(targets={"m": 1.0})}, "a target waits for m, but evaluations of this task give loss"),
        ({"stop": Stop(target_accuracy=0.9)}, "a target waits for accuracy, but"),
        ({"watch": Watch("m", keep=True)}, "keep_best waits for m, but"),
    ],
)
def test_what_waits_for_something_that_nothing_measures_ends_the_run(
    open_scene: Open, fields: dict[str, Any], sentence: str
) -> None:
    """At the first evaluation: else it would wait for ever."""
    scene = evaluate(running(open_scene, **fields), 0.5)
    failure = scene.end().finish.failure
    assert isinstance(failure, ConfigurationError)
    assert sentence in str(failure)


@pytest.mark.parametrize(("lower", "value", "sign"), [(True, 1.9, "<="), (False, 2.1, ">=")])
def test_a_target_of_any_metric_ends_the_run(open_scene: Open, lower: bool, value: float, sign: str) -> None:
    watch = Watch(lower=frozenset({"loss", "m"} if lower else {"loss"}))
    scene = running(open_scene, stop=Stop(targets={"m": 2.0}), watch=watch)
    evaluate(scene, 0.5, metrics={"m": 4.0 - value})
    assert not scene.coordinator.state.stopping
    evaluate(scene, 0.5, metrics={"m": value})
    finish = scene.end().finish
    assert (finish.outcome, finish.detail) == ("reached target", f"m {value:.4f} {sign} 2")
    assert scene.logged("evaluated")[-1]["metrics"] == {"m": value}
    assert scene.logged("finished")[0]["metrics"] == {"m": value}


def test_the_evaluator_is_told_the_best_value_where_the_best_is_kept(open_scene: Open) -> None:
    scene = evaluate(running(open_scene, watch=Watch(keep=True)), 0.5, 0.7)
    assert scene.announce("a").asked(Evaluate)[-1].best == 0.5
    scene.handle(Evaluated(3, 0.4, None, kept=True))
    assert [one.get("kept") for one in scene.logged("evaluated")] == [None, None, True]


def test_that_the_best_was_not_saved_is_said(open_scene: Open) -> None:
    scene = evaluate(running(open_scene, watch=Watch(keep=True)), 0.5, trouble="no space left")
    assert scene.logged("note")[-1]["text"] == "version 1 is the best so far, but was not saved: no space left"


def test_a_run_that_is_recovered_remembers_what_evaluations_have_shown(open_scene: Open) -> None:
    scene = evaluate(running(open_scene, stop=Stop(patience=3)), 0.5, 0.7)
    plain = capture(scene.coordinator.state).to_plain()
    other = open_scene(evaluates=True, evaluate_every=1, stop=Stop(patience=3)).coordinator.state
    restore(other, plain)
    assert other.progress == Progress(0.5, 1, 0.5, 1)
    for watch in (Watch("m"), Watch(lower=frozenset())):
        changed = open_scene(evaluates=True, evaluate_every=1, watch=watch).coordinator.state
        restore(changed, plain)
        assert changed.progress == Progress(), "values of another metric are not compared"
    restore(other, {name: one for name, one in plain.items() if name != "progress"})
    assert other.progress == Progress()
