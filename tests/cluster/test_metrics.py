"""Named metrics on a real cluster: measured, watched, reached; the best version is kept beside the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from distributed import Client

import psplatform as ps
from psplatform.client.runs.recovery import recover
from psplatform.errors import ConfigurationError, StoreError, UserCodeError

LIMIT_S = 180.0
Fields = dict[str, Any]


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


def error_rate(outputs: Any, targets: Any) -> float:
    return float((outputs.argmax(1) != targets).float().mean())


def raising(outputs: Any, targets: Any) -> float:
    raise ZeroDivisionError("nothing was right")


MEASURED: Fields = {
    "metrics": {"wrong": ps.Metric(error_rate, better="lower"), "f1": "f1", "perplexity": "perplexity"},
    "watch": "wrong",
    "keep_best": True,
    "evaluate_every": 5,
}


def test_metrics_are_in_log_summary_and_store(
    finish: Callable[..., ps.Run], log: Callable[..., Any], small: Fields
) -> None:
    run = finish(**{**small, **MEASURED, "stop": ps.Stop(updates=40)})
    evaluated = log(run, "evaluated")
    for one in evaluated:
        assert one["metrics"]["wrong"] == pytest.approx(1 - one["accuracy"])
        assert one["metrics"]["perplexity"] == pytest.approx(torch.tensor(one["loss"]).exp().item())
    summary = run.metrics()
    assert summary["metrics"] == evaluated[-1]["metrics"]
    best = min(evaluated, key=lambda one: one["metrics"]["wrong"])
    wanted = {"metric": "wrong", "value": best["metrics"]["wrong"], "version": best["version"], "kept": True}
    assert summary["best"] == wanted

    arrays, version = run.parameters(best=True)
    assert version == best["version"]
    points, sides = small["data"]()
    with torch.no_grad():
        found = error_rate(run.model(best=True).eval()(points), sides)
    assert found == pytest.approx(best["metrics"]["wrong"])
    assert arrays.keys() == run.parameters()[0].keys()


def test_a_run_ends_at_the_target_of_a_metric(finish: Callable[..., ps.Run], small: Fields) -> None:
    stop = ps.Stop(updates=100_000, targets={"wrong": 0.45})
    summary = finish(**{**small, **MEASURED, "stop": stop}).metrics()
    assert summary["outcome"] == "reached target"
    assert summary["detail"].startswith("wrong 0.")
    assert summary["detail"].endswith("<= 0.45")


def test_patience_ends_a_run_and_one_recovered_goes_on_with_more_of_it(
    finish: Callable[..., ps.Run], log: Callable[..., Any], client: Client, small: Fields
) -> None:
    """With a rate of 0 nothing ever gets better."""
    still = {**small, **MEASURED, "optimizer": ps.SGD(lr=0.0), "watch": "loss", "model": plain_network}
    run = finish(**{**still, "stop": ps.Stop(patience=3), "checkpoints": ps.Checkpoints(every_updates=5)})
    summary = run.metrics()
    assert summary["outcome"] == "patience"
    assert "loss was not better than" in summary["detail"]
    first = min(log(run, "evaluated"), key=lambda one: (one["loss"], one["version"]))
    assert summary["best"]["version"] == first["version"]
    again = {name: still[name] for name in ("model", "loss", "data", "test", "metrics")}
    on = recover(run.store, client, **again, stop=ps.Stop(updates=summary["updates"] + 5))
    with on:
        assert on.wait(LIMIT_S)["outcome"] == "updates"
    assert on.parameters(best=True)[1] == summary["best"]["version"]


def plain_network() -> torch.nn.Module:
    return torch.nn.Linear(2, 2)


def test_a_metric_that_raises_ends_the_run_with_its_traceback(start: Callable[..., ps.Run], small: Fields) -> None:
    run = start(**{**small, "metrics": [raising], "evaluate_every": 5})
    with pytest.raises(UserCodeError, match="nothing was right") as caught:
        run.wait(LIMIT_S)
    assert "in raising" in caught.value.user_traceback
    with pytest.raises(StoreError, match="its job has no keep_best"):
        run.parameters(best=True)


def test_what_needs_held_out_data_is_refused_without_them(start: Callable[..., ps.Run], small: Fields) -> None:
    for wish in ({"metrics": "f1"}, {"keep_best": True}, {"stop": ps.Stop(patience=1)}):
        with pytest.raises(ConfigurationError, match=r"need held-out data; give the job test="):
            start(**{**small, "test": None, "evaluate_every": 5, **wish})
