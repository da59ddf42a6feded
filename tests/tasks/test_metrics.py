"""Evaluations measure what the job names: over all held-out samples, whatever the chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from psplatform.errors import ConfigurationError
from psplatform.jobs.metrics import metrics_of
from psplatform.tasks import evaluation
from psplatform.tasks.metrics import as_number, macro_f1
from psplatform.tasks.seam import Evaluation, Task, Update
from psplatform.tasks.supervised import SupervisedTask

RNG = np.random.default_rng(1)
X = RNG.standard_normal((60, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 60)


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


class Share:
    """The share of outputs whose largest score is that of the target, as torchmetrics would count it.

    Compared with anything it makes an object, as those of torchmetrics do, which counts as true.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> Any:
        return Share()

    def __init__(self) -> None:
        self.calls = 0
        self.right = self.seen = 7  # reset() must be called

    def reset(self) -> None:
        self.right = self.seen = 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.calls += 1
        self.right += int((outputs.argmax(1) == targets).sum())
        self.seen += len(targets)

    def compute(self) -> Tensor:
        return torch.tensor(self.right / self.seen)


@pytest.fixture(params=[256, 7], ids=["one chunk", "nine chunks"], autouse=True)
def _chunks(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(evaluation, "_CHUNK", request.param)
    return


def measured(bind: Callable[..., Any], metrics: Any, **fields: Any) -> Evaluation:
    given: dict[str, Any] = {"model": make, "loss": cross_entropy, "data": (X, Y), "test": (X, Y), **fields}
    found = bind(SupervisedTask(**given, metrics=metrics_of(metrics))).evaluate()
    assert found is not None
    return found  # type: ignore[no-any-return]


def outputs_of() -> Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        return make()(torch.from_numpy(X))


def test_bundled_and_own_metrics_are_those_of_the_whole(bind: Callable[..., Any]) -> None:
    seen: list[tuple[int, ...]] = []

    def own(outputs: Tensor, targets: Tensor) -> float:
        seen.extend([tuple(outputs.shape), tuple(targets.shape)])
        return float(outputs.sum())

    found = measured(bind, {"f1": "f1", "perplexity": "perplexity", "accuracy": "accuracy", "own": own, "s": Share()})
    outputs = outputs_of()
    predicted = outputs.argmax(1).numpy()
    assert found.metrics["f1"] == f1_score(Y, predicted, average="macro")
    assert found.metrics["perplexity"] == math.exp(found.loss)
    assert found.metrics["own"] == pytest.approx(float(outputs.sum()), rel=1e-5)
    assert found.accuracy == np.mean(predicted == Y)
    assert found.metrics["s"] == pytest.approx(found.accuracy)
    assert "accuracy" not in found.metrics
    assert seen == [(60, 3), (60,)]


def test_metrics_of_torchmetrics_are_taken(bind: Callable[..., Any]) -> None:
    torchmetrics = pytest.importorskip("torchmetrics")
    macro = torchmetrics.F1Score(task="multiclass", num_classes=3, average="macro")
    found = measured(bind, {"macro": macro, "f1": "f1", "auc": torchmetrics.AUROC(task="multiclass", num_classes=3)})
    assert found.metrics["macro"] == pytest.approx(found.metrics["f1"])
    assert 0 < found.metrics["auc"] < 1
    assert metrics_of({"error": torchmetrics.MeanSquaredError()})["error"].better == "lower"


def test_an_object_begins_anew_with_each_evaluation(bind: Callable[..., Any]) -> None:
    given = Share()
    bound = bind(SupervisedTask(make, cross_entropy, (X, Y), (X, Y), metrics=metrics_of([given])))
    assert bound.evaluate() == bound.evaluate()
    assert given.calls == 0, "the user's own object is left alone"


def test_a_step_tells_outputs_by_predict(bind: Callable[..., Any]) -> None:
    def step(model: nn.Module, batch: Any) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1])

    def predict(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        return model(batch[0]), batch[1]

    with_loss = measured(bind, "f1")
    assert measured(bind, "f1", loss=None, step=step, predict=predict) == with_loss
    alone = measured(bind, "perplexity", loss=None, step=step)
    assert (alone.accuracy, alone.metrics) == (None, {"perplexity": math.exp(with_loss.loss)})
    with pytest.raises(ConfigurationError, match=r"made of outputs and targets, which a step does not tell"):
        measured(bind, "f1", loss=None, step=step)
    with pytest.raises(ConfigurationError, match=r"predict function returned a Tensor; return the pair"):
        measured(bind, "f1", loss=None, step=step, predict=lambda model, batch: model(batch[0]))


@dataclass
class Out:
    """A model's output with a name for its scores, as transformers has them."""

    logits: Tensor


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = make()

    def forward(self, inputs: Tensor) -> Out:
        return Out(self.inner(inputs))


def test_outputs_of_any_structure_are_joined(bind: Callable[..., Any]) -> None:
    found = measured(
        bind,
        {"rows": lambda outputs, targets: len(outputs.logits), "f1": "f1"},
        model=Named,
        loss=lambda output, targets: cross_entropy(output.logits, targets),
    )
    assert found.metrics["rows"] == 60
    assert found.accuracy is not None


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (lambda outputs, targets: "high", r'The metric "m" is a str; return one number'),
        (lambda outputs, targets: outputs, r"is a Tensor of shape \(60, 3\); return one number"),
        (lambda outputs, targets: {"a": 1.0}, "is a dict; give its parts as metrics of their own"),
        (lambda outputs, targets: True, "is a bool; return one number"),
    ],
)
def test_what_is_not_one_number_is_refused(bind: Callable[..., Any], metric: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        measured(bind, {"m": metric})


def test_f1_says_what_it_needs(bind: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"f1 needs outputs of shape \[samples, classes\]"):
        measured(bind, "f1", loss=mse_loss, data=(X, X[:, :3]), test=(X, X[:, :3]))


def test_f1_counts_the_classes_that_occur() -> None:
    scores = torch.eye(5)[torch.tensor([0, 0, 1, 1])]
    assert macro_f1(scores, torch.tensor([0, 1, 1, 1])) == pytest.approx((2 / 3 + 4 / 5) / 2)


def test_numbers_of_every_library_are_numbers() -> None:
    for one in (1, 1.0, np.float32(1), np.ones(()), torch.ones(1), torch.tensor(1)):
        assert as_number("m", one) == 1.0


class Counting(Task):
    samples = 4

    def initial(self) -> dict[str, Tensor]:
        return {"w": torch.zeros(2)}

    def compute(self, parameters: Any, batch: Any, rng: Any) -> Update:
        return Update({}, 0.0)

    def evaluate(self, parameters: Any) -> Evaluation:
        return Evaluation(0.5, metrics={"coherence": np.float64(2)})


def test_a_task_of_ones_own_returns_its_metrics(bind: Callable[..., Any]) -> None:
    assert bind(Counting()).evaluate() == Evaluation(0.5, None, {"coherence": 2.0})
