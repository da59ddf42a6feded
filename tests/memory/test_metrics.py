"""The coordinator, the evaluator and real tensors together: patience, targets, and the best version's tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from psplatform.core.plan import Stop
from psplatform.core.quality import Watch
from psplatform.jobs.metrics import metrics_of
from psplatform.jobs.optimizers import SGD

LOWER = frozenset({"loss"})


def confident(outputs: Any, targets: Any) -> float:
    return float(outputs.softmax(1).max(1).values.mean())


def test_the_best_version_is_kept_and_is_not_the_last(
    convolutional: Callable[..., Any], train: Callable[..., Any]
) -> None:
    """A rate far too large: the loss falls once and rises again."""
    task = convolutional(test=True)
    watch = Watch(keep=True)
    given = {"evaluate_every": 1, "optimizer": SGD(lr=2.0), "stop": Stop(updates=200, patience=4), "watch": watch}
    trained = train(task, **given).run()
    evaluated = trained.of_kind("evaluated")
    best = min(evaluated, key=lambda one: one["loss"])
    assert trained.finish.outcome == "patience"
    assert evaluated[-1]["version"] > best["version"]
    assert trained.arithmetic.best_version == best["version"]
    improved = [one["version"] for one in evaluated if one.get("kept")]
    assert improved[-1] == best["version"]
    assert any(not torch.equal(trained.arithmetic.best[name], last) for name, last in trained.result.items())


def test_a_named_metric_ends_the_run_at_its_target(
    convolutional: Callable[..., Any], train: Callable[..., Any]
) -> None:
    task = replace(convolutional(test=True), metrics=metrics_of([confident, "perplexity"]))
    trained = train(task, evaluate_every=2, stop=Stop(updates=500, targets={"confident": 0.5})).run()
    last = trained.of_kind("evaluated")[-1]
    assert trained.finish.outcome == "reached target"
    assert trained.finish.detail == f"confident {last['metrics']['confident']:.4f} >= 0.5"
    assert all(one["metrics"]["confident"] < 0.5 for one in trained.of_kind("evaluated")[:-1])


def test_metrics_do_not_change_what_is_trained(convolutional: Callable[..., Any], train: Callable[..., Any]) -> None:
    plain = convolutional(test=True)
    measured = replace(plain, metrics=metrics_of([confident, "f1"]))
    without, beside = (train(task, evaluate_every=1).run() for task in (plain, measured))
    assert all(torch.equal(without.result[name], tensor) for name, tensor in beside.result.items())
