"""A task written as functions of plain tensors: k-means by additive updates as the example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from psplatform.errors import ConfigurationError
from psplatform.tasks import functional
from psplatform.tasks.cancellation import Cancellation, Cancelled, check
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import Evaluation, Task, Update

RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
POINTS = torch.tensor(np.repeat(CENTRES, 40, axis=0) + 0.3 * RNG.standard_normal((120, 2)), dtype=torch.float32)


class KMeans(Task):
    """Clusters are sums and counts of the points assigned to them: additive statistics, like topic counts in LDA."""

    samples = len(POINTS)

    def initial(self) -> dict[str, Tensor]:
        means = POINTS[[0, 40, 80]] + torch.randn(3, 2)
        return {"sums": means, "counts": torch.ones(3, dtype=torch.float64)}

    def load(self, indices: NDArray[np.int64]) -> Tensor:
        return POINTS[torch.from_numpy(indices)]

    def compute(self, parameters: Mapping[str, Tensor], batch: Tensor, rng: np.random.Generator) -> Update:
        nearest, distance = self._assign(parameters, batch)
        one_hot = torch.nn.functional.one_hot(nearest, 3)
        return Update({"sums": one_hot.float().T @ batch, "counts": one_hot.sum(dim=0)}, distance)

    def evaluate(self, parameters: Mapping[str, Tensor]) -> Evaluation:
        return Evaluation(loss=self._assign(parameters, POINTS)[1])

    def _assign(self, parameters: Mapping[str, Tensor], points: Tensor) -> tuple[Tensor, float]:
        means = parameters["sums"] / parameters["counts"][:, None].float()
        distance, nearest = torch.cdist(points, means).min(dim=1)
        return nearest, distance.mean().item()


def test_an_additive_task_learns_by_adding_its_updates(bind: Callable[..., Any]) -> None:
    """Twelve batches, each added to the bound values, bring the cluster means to the true ones."""
    bound = bind(KMeans())
    before = bound.evaluate().loss
    for start in range(0, 120, 10):
        bound.compute(range(start, start + 10))
        for key, update in bound.updates.items():
            bound.values[key].add_(update)
    assert bound.value("counts").sum().item() == 123
    assert bound.evaluate().loss < min(before, 0.5)
    means = bound.value("sums") / bound.value("counts")[:, None].float()
    np.testing.assert_allclose(means.numpy(), CENTRES, atol=0.3)


def test_every_floating_dtype_has_its_region(bind: Callable[..., Any]) -> None:
    """Counts in float64 and sums in float32 travel beside each other."""
    bound = bind(KMeans())
    assert bound.values.keys() == {"parameter.float32", "parameter.float64"}
    assert bound.workspace.samples == 120
    assert bound.workspace.module() is None


def test_initial_parameters_depend_on_the_seed_alone(bind: Callable[..., Any]) -> None:
    """``initial`` draws from torch's generator, which is seeded for it."""
    first, again, other = (bind(KMeans(), seed).value("sums") for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


class Scripted(Task):
    """A task whose computation is handed in."""

    samples = 5

    def __init__(self, compute: Callable[..., Update], initial: dict[str, Tensor] | None = None) -> None:
        self._compute = compute
        self._initial = {"w": torch.zeros(3), "v": torch.zeros(2)} if initial is None else initial

    def initial(self) -> dict[str, Tensor]:
        return self._initial

    def compute(self, parameters: Mapping[str, Tensor], batch: Any, rng: np.random.Generator) -> Update:
        return self._compute(parameters, batch, rng)


def test_randomness_of_an_update_depends_on_the_batch_alone(bind: Callable[..., Any]) -> None:
    """Both the generator handed in and torch's own are seeded by the batch."""

    def noise(_parameters: Any, _batch: Any, rng: np.random.Generator) -> Update:
        return Update({"w": torch.randn(3), "v": torch.from_numpy(rng.standard_normal(2))}, 0.0)

    bound = bind(Scripted(noise))
    updates = []
    for seed in (1, 2, 1):
        bound.compute([0], seed)
        updates.append((bound.update("w").tolist(), bound.update("v").tolist()))
    assert updates[0] == updates[2]
    assert updates[0][0] != updates[1][0]
    assert updates[0][1] != updates[1][1]


def test_a_name_left_out_stands_for_zeros(bind: Callable[..., Any]) -> None:
    """An update may touch a part of the parameters, and what an earlier one left is gone."""
    bound = bind(Scripted(lambda _, batch, __: Update({"w": torch.ones(3)} if batch[0] else {"v": torch.ones(2)}, 0.0)))
    bound.compute([1])
    bound.compute([0])
    assert bound.update("w").tolist() == [0, 0, 0]
    assert bound.update("v").tolist() == [1, 1]


def test_a_task_may_use_autograd(bind: Callable[..., Any]) -> None:
    """A gradient of the user's own making is detached on its way out."""

    def squares(parameters: Mapping[str, Tensor], _batch: Any, _rng: Any) -> Update:
        w = parameters["w"].clone().requires_grad_()
        loss = ((w - 1) ** 2).sum()
        (gradient,) = torch.autograd.grad(loss, w, create_graph=True)
        return Update({"w": gradient}, loss.item())

    bound = bind(Scripted(squares))
    assert bound.compute([0]).loss == 3.0
    assert bound.update("w").tolist() == [-2, -2, -2]
    assert not bound.updates["parameter.float32"].requires_grad


def test_a_task_that_looks_for_it_ends_as_soon_as_it_is_cancelled(bind: Callable[..., Any]) -> None:
    cancel, reached = Cancellation(), []

    def cancelling(*_: Any) -> Update:
        check()
        reached.append("before")
        cancel.cancel()
        check()
        reached.append("after")
        return Update({"w": torch.ones(3)}, 0.0)

    bound = bind(Scripted(cancelling))
    with pytest.raises(Cancelled):
        bound.compute([0], cancel=cancel)
    assert reached == ["before"]
    check()  # nobody computes here any more


def test_a_cancellation_is_seen_after_computing(bind: Callable[..., Any]) -> None:
    """The platform cannot look into the task, but what was abandoned is not written."""
    cancel = Cancellation()

    def cancelling(*_: Any) -> Update:
        cancel.cancel()
        return Update({"w": torch.ones(3)}, 0.0)

    bound = bind(Scripted(cancelling))
    with pytest.raises(Cancelled):
        bound.compute([0], cancel=cancel)
    assert not bound.update("w").any()


def test_a_cancellation_is_seen_while_an_update_is_copied(
    bind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, "_PIECE", 1)

    class Late(Cancellation):
        def check(self) -> None:
            if bound.update("w")[1]:
                raise Cancelled

    bound = bind(Scripted(lambda *_: Update({"w": torch.ones(3)}, 0.0)))
    with pytest.raises(Cancelled):
        bound.compute([0], cancel=Late())
    assert bound.update("w").tolist() == [1, 1, 0]


@pytest.mark.parametrize("piece", [1, 4, 100])
def test_updates_of_any_form_are_copied(piece: int, bind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "_PIECE", piece)
    updates = {"w": torch.arange(6.0).view(3, 2).T, "scalar": torch.tensor(7.0), "none": torch.empty(0, 3)}
    bound = bind(Scripted(lambda *_: Update(updates, 0.0), {name: one.clone() for name, one in updates.items()}))
    bound.compute([0])
    assert all(torch.equal(bound.update(name), one) for name, one in updates.items())


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"x": torch.ones(3)}, "update for 'x'"),
        ({"w": torch.ones(1)}, r"of shape \(1,\), but the parameter has \(3,\)"),
    ],
)
def test_an_update_that_does_not_fit_is_refused(bind: Callable[..., Any], tensors: Any, message: str) -> None:
    """Nothing is broadcast or ignored in silence."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        bind(Scripted(lambda *_: Update(tensors, 0.0))).compute([0])
    assert caught.value.field == "task"


@pytest.mark.parametrize(
    ("initial", "message"),
    [({}, "no parameters"), ({"n": torch.zeros(2, dtype=torch.int64)}, "'n' of dtype int64; use float32 or float64")],
)
def test_parameters_that_cannot_be_trained_are_refused(initial: dict[str, Tensor], message: str) -> None:
    """At opening, before anything starts."""
    with pytest.raises(ConfigurationError, match=message):
        open_workspace(Scripted(lambda *_: Update({}, 0.0), initial), 0, torch.device("cpu"))


def test_a_task_must_count_its_samples() -> None:
    """Batches are drawn below that number."""
    task = KMeans()
    task.samples = 0
    with pytest.raises(ConfigurationError, match="counts no samples"):
        open_workspace(task, 0, torch.device("cpu"))


def test_a_task_need_not_evaluate(bind: Callable[..., Any]) -> None:
    """Without held-out data there is no evaluation."""
    bound = bind(Scripted(lambda *_: Update({}, 0.0)))
    assert not bound.workspace.evaluates
    assert bound.evaluate() is None
    assert bind(KMeans()).workspace.evaluates


class InPlace(Task):
    """Computes into the tensors that it is given, or into others."""

    samples = 4
    elsewhere = False

    def initial(self) -> dict[str, Tensor]:
        return {"w": torch.zeros(5)}

    def write_to(self, updates: Mapping[str, Tensor]) -> None:
        self.room = {name: torch.zeros_like(one) for name, one in updates.items()} if self.elsewhere else dict(updates)

    def compute(self, parameters: Mapping[str, Tensor], batch: Any, rng: np.random.Generator) -> Update:
        self.seen = parameters["w"]
        torch.add(parameters["w"], 1.0, out=self.room["w"])
        return Update(self.room, 0.0)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_update_that_is_where_it_is_wanted_is_as_good_as_one_that_is_copied(
    bind: Callable[..., Any], elsewhere: bool
) -> None:
    task = InPlace()
    task.elsewhere = elsewhere
    bound = bind(task)
    for value in (1.0, 3.0):
        bound.value("w").fill_(value)
        bound.compute([0])
        assert bound.update("w").tolist() == [value + 1.0] * 5
    assert (task.room["w"].data_ptr() == bound.update("w").data_ptr()) is not elsewhere


def test_a_task_computes_on_the_vectors_it_is_turned_to(bind: Callable[..., Any]) -> None:
    task = InPlace()
    bound = bind(task)
    other = {key: torch.full_like(vector, 7.0) for key, vector in bound.values.items()}
    bound.workspace.compute_from(other)
    bound.compute([0])
    assert task.seen.data_ptr() == other["parameter.float32"].data_ptr()
    assert bound.update("w").tolist() == [8.0] * 5
