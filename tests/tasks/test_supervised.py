"""A supervised workspace computes the gradient of its batch, and nothing else of it remains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from psplatform.errors import ConfigurationError, InvariantViolation
from psplatform.tasks.cancellation import Cancellation, Cancelled
from psplatform.tasks.opening import open_workspace
from psplatform.tasks.seam import BatchRef
from psplatform.tasks.supervised import SupervisedTask
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, fill

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5))
Y = RNG.integers(0, 3, 60)


def make_mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def make_dropout() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 3))


def make_batch_norm() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def task(model: Any = make_mlp, loss: Any = cross_entropy, **fields: Any) -> SupervisedTask:
    return SupervisedTask(model=model, loss=loss, **{"data": (X, Y), **fields})


def test_the_gradient_is_the_one_of_a_plain_torch_loop(bind: Callable[..., Any]) -> None:
    """Bit for bit what autograd yields for the same model, batch and loss."""
    bound = bind(task(), seed=3)
    computed = bound.compute([4, 1, 9])
    torch.manual_seed(3)
    model = make_mlp()
    loss = cross_entropy(model(torch.tensor(X[[4, 1, 9]]).float()), torch.tensor(Y[[4, 1, 9]]))
    loss.backward()
    assert computed.loss == loss.item()
    assert computed.samples == 3
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(bound.update(name), parameter.grad)


def test_the_initial_values_depend_on_the_seed_alone(bind: Callable[..., Any]) -> None:
    """Two openings agree, another seed differs, and training changes nothing about it."""
    first, again, other = (bind(task(), seed) for seed in (1, 1, 2))
    first.values["parameter.float32"].zero_()
    initial = first.workspace.initial()
    assert initial.keys() == {spec.name for spec in first.workspace.specs}
    assert all(torch.equal(initial[name], again.value(name)) for name in initial)
    assert not torch.equal(initial["0.weight"], other.value("0.weight"))


def test_a_module_instance_starts_from_its_own_parameters_and_stays_untouched(bind: Callable[..., Any]) -> None:
    """Workspaces of one process do not share the user's module."""
    model = make_mlp()
    before = model.get_parameter("0.weight").clone()
    bound = bind(task(model))
    assert torch.equal(bound.value("0.weight"), before)
    bound.values["parameter.float32"].zero_()
    bound.compute([0, 1])
    assert torch.equal(model.get_parameter("0.weight"), before)
    assert model.get_parameter("0.weight").grad is None


@pytest.mark.parametrize("parts", [2, 3, 7, 10, 100])
def test_micro_batches_add_up_to_the_whole_batch(bind: Callable[..., Any], parts: int) -> None:
    """Loss and gradient agree within 1e-6, also for parts of unequal size and for more parts than samples."""
    bound = bind(task())
    whole = bound.compute(range(10))
    expected = bound.gradient()
    split = bound.compute(range(10), parts=parts)
    assert split.loss == pytest.approx(whole.loss, abs=1e-6)
    assert split.samples == 10
    torch.testing.assert_close(bound.gradient(), expected, rtol=0, atol=1e-6)


def test_gradients_do_not_accumulate_over_batches(bind: Callable[..., Any]) -> None:
    """Each computation starts from zero."""
    bound = bind(task())
    bound.compute([1, 2])
    first = bound.gradient()
    bound.compute([3])
    bound.compute([1, 2])
    assert torch.equal(bound.gradient(), first)


def test_dropout_depends_on_the_seed_of_the_batch_alone(bind: Callable[..., Any]) -> None:
    """The same seed drops the same units whatever was drawn before; the process's own generator is not disturbed."""
    bound = bind(task(make_dropout))
    torch.manual_seed(11)
    expected_draw = torch.rand(1)
    torch.manual_seed(11)
    bound.compute(range(8), seed=5)
    first = bound.gradient()
    assert torch.equal(torch.rand(1), expected_draw)
    bound.compute(range(8), seed=6)
    assert not torch.equal(bound.gradient(), first)
    torch.rand(17)
    bound.compute(range(8), seed=5)
    assert torch.equal(bound.gradient(), first)


class Noisy:
    """Samples that draw from torch's generator."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(5), index % 3


def test_augmentation_depends_on_the_seed_of_the_batch_alone(bind: Callable[..., Any]) -> None:
    """A data set that draws from torch's generator draws the same for the same batch."""
    bound = bind(task(data=Noisy()))
    losses = [bound.compute([1, 2], seed).loss for seed in (1, 2, 1)]
    assert losses[0] == losses[2] != losses[1]


class CancellingData:
    """Samples of which one cancels the computation that reads it."""

    def __init__(self) -> None:
        self.cancel: Cancellation | None = None
        self.reads = 0

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[NDArray[np.float64], int]:
        self.reads += 1
        if self.cancel is not None and index == 2:
            self.cancel.cancel()
        return X[index], int(Y[index])


@pytest.mark.parametrize("make_model", [make_mlp, make_dropout, make_batch_norm])
def test_a_cancellation_between_micro_batches_leaves_no_trace(bind: Callable[..., Any], make_model: Any) -> None:
    """The part that follows is not even read, and the next gradient is that of an undisturbed workspace."""
    data = CancellingData()
    bound, undisturbed = bind(task(make_model, data=data)), bind(task(make_model))
    data.cancel = cancel = Cancellation()
    with pytest.raises(Cancelled):
        bound.compute(range(8), parts=2, cancel=cancel)
    assert data.reads == 4
    data.cancel = None
    assert_same_next_gradient(bound, undisturbed)


@pytest.mark.parametrize("make_model", [make_mlp, make_dropout, make_batch_norm])
def test_a_cancellation_in_the_middle_of_backward_leaves_no_trace(bind: Callable[..., Any], make_model: Any) -> None:
    """Backward stops at the next parameter, and the next gradient is that of an undisturbed workspace."""
    bound, undisturbed = bind(task(make_model)), bind(task(make_model))
    cancel = Cancellation()
    last = bound.workspace.module()[-1]
    hook = last.weight.register_hook(lambda _: cancel.cancel())
    with pytest.raises(Cancelled):
        bound.compute(range(8), cancel=cancel)
    hook.remove()
    assert not bound.update("0.weight").any(), "backward went on to the first layer"
    assert_same_next_gradient(bound, undisturbed)


def assert_same_next_gradient(bound: Any, undisturbed: Any) -> None:
    """Both compute the same from now on, buffers included."""
    computed, expected = bound.compute(range(8), seed=9), undisturbed.compute(range(8), seed=9)
    assert computed == expected
    for vectors, others in ((bound.updates, undisturbed.updates), (bound.values, undisturbed.values)):
        assert all(torch.equal(vectors[key], others[key]) for key in vectors)


def test_a_cancelled_computation_does_not_start(bind: Callable[..., Any]) -> None:
    """A flag that is up beforehand is seen before anything is read."""
    data = CancellingData()
    bound = bind(task(data=data))
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(Cancelled):
        bound.compute(range(8), cancel=cancel)
    assert data.reads == 0


def test_batch_norm_pushes_its_statistics_and_counts_batches(bind: Callable[..., Any]) -> None:
    """Buffers are updated in the bound values and handed over with the gradient."""
    bound = bind(task(make_batch_norm), seed=1)
    torch.manual_seed(1)
    model = make_batch_norm()
    for indices in (range(8), range(8, 20)):
        bound.compute(indices)
        model(torch.tensor(X[list(indices)]).float())
    for name, buffer in model.named_buffers():
        assert torch.equal(bound.update(name), buffer), name
        assert torch.equal(bound.value(name), buffer), name
    assert bound.value("1.num_batches_tracked").item() == 2


def test_a_failing_model_leaves_the_buffers_as_they_were(bind: Callable[..., Any]) -> None:
    """The user's exception passes unchanged, and the statistics of the unfinished batch are forgotten."""

    def failing(*_: Tensor) -> Tensor:
        raise KeyError("mine")

    bound = bind(task(make_batch_norm, failing))
    before = {key: value.clone() for key, value in bound.values.items()}
    with pytest.raises(KeyError, match="mine"):
        bound.compute(range(8))
    assert all(torch.equal(bound.values[key], before[key]) for key in before)


def test_buffers_that_a_module_replaces_are_restored_too(bind: Callable[..., Any]) -> None:
    """A module may assign a new tensor to its buffer; an abandoned computation does not keep it."""

    class Counting(nn.Linear):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__(5, 3)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls = self.calls + 1
            return super().forward(inputs)

    bound, cancel = bind(task(Counting)), Cancellation()
    hook = bound.workspace.module().weight.register_hook(lambda _: cancel.cancel())
    with pytest.raises(Cancelled):
        bound.compute([0, 1], cancel=cancel)
    hook.remove()
    bound.compute([0, 1])
    assert bound.value("calls").item() == bound.update("calls").item() == 1


def test_a_callable_that_returns_the_same_module_again_is_harmless(bind: Callable[..., Any]) -> None:
    """Workspaces of one process do not share it."""
    model = make_mlp()
    first, second = bind(task(lambda: model)), bind(task(lambda: model))
    first.values["parameter.float32"].zero_()
    assert torch.equal(second.value("0.weight"), model.get_parameter("0.weight"))
    assert torch.equal(first.workspace.initial()["0.weight"], model.get_parameter("0.weight"))


def test_values_may_change_under_the_workspace(bind: Callable[..., Any]) -> None:
    """A pull overwrites the bound values in place; the next gradient is computed from them."""
    bound = bind(task())
    bound.compute([1, 2])
    before = bound.gradient()
    bound.values["parameter.float32"].mul_(0.5)
    bound.compute([1, 2])
    assert not torch.equal(bound.gradient(), before)


def test_a_workspace_can_be_bound_again(bind: Callable[..., Any]) -> None:
    """After a change of shards it computes from and into the new vectors, and cancels as before."""
    bound = bind(task())
    bound.compute([1, 2])
    values = {key: value.clone() for key, value in bound.values.items()}
    updates = {key: torch.zeros_like(value) for key, value in bound.updates.items()}
    bound.workspace.bind(bound.layout, values, updates)
    expected = bound.gradient()
    bound.updates["parameter.float32"].zero_()
    bound.compute([1, 2])
    assert torch.equal(updates["parameter.float32"], expected)
    assert not bound.gradient().any()


def test_computing_before_binding_is_a_bug() -> None:
    """The platform binds first."""
    workspace = open_workspace(task(), 0, torch.device("cpu"))
    with pytest.raises(InvariantViolation, match="bind"):
        workspace.compute(BatchRef(np.array([0]), 0), Cancellation())


def test_evaluation_covers_all_held_out_samples(bind: Callable[..., Any]) -> None:
    """Loss and accuracy are those of the whole set, though it is walked in chunks; the model trains on afterwards."""
    inputs = RNG.standard_normal((600, 5)).astype(np.float32)
    targets = RNG.integers(0, 3, 600)
    bound = bind(task(make_dropout, test=(inputs, targets)))
    evaluation = bound.evaluate()
    module = bound.workspace.module()
    assert module.training
    with torch.no_grad():
        outputs = module.eval()(torch.tensor(inputs))
    assert evaluation.loss == pytest.approx(cross_entropy(outputs, torch.tensor(targets)).item(), rel=1e-6)
    assert evaluation.accuracy == (outputs.argmax(1).numpy() == targets).mean()


def test_evaluation_is_reproducible_though_it_draws(bind: Callable[..., Any]) -> None:
    """Random held-out data are drawn alike in every evaluation of a run."""
    bound = bind(task(test=Noisy()))
    first = bound.evaluate()
    torch.rand(1)
    assert bound.evaluate() == first


def test_there_is_no_evaluation_without_held_out_data(bind: Callable[..., Any]) -> None:
    """Nothing is made up."""
    assert bind(task()).evaluate() is None
    assert not bind(task()).workspace.evaluates
    assert bind(task(test=(X, Y))).workspace.evaluates


def test_accuracy_is_left_out_where_it_means_nothing(bind: Callable[..., Any]) -> None:
    """Regression has a loss only."""
    values = X[:, :3].astype(np.float32)
    evaluation = bind(task(loss=mse_loss, data=(X, values), test=(X, values))).evaluate()
    assert evaluation.accuracy is None
    assert evaluation.loss > 0


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (lambda: nn.Linear(5, 1), Y),
        (lambda: nn.Linear(5, 3), Y.astype(np.float32)),
        (lambda: nn.Sequential(nn.Linear(5, 6), nn.Unflatten(1, (3, 2))), Y),
    ],
    ids=["one column", "targets that are no class ids", "more dimensions"],
)
def test_accuracy_takes_one_row_of_class_scores_per_sample(bind: Callable[..., Any], model: Any, targets: Any) -> None:
    """Whatever else looks almost like a classification has no accuracy."""
    data = (X, targets)
    evaluation = bind(task(model, lambda outputs, _: outputs.square().mean(), data=data, test=data)).evaluate()
    assert evaluation.accuracy is None


def test_evaluation_stops_when_cancelled_and_training_goes_on(bind: Callable[..., Any]) -> None:
    """The flag is seen before the next chunk, and the model is back in training mode."""
    data = CancellingData()
    bound = bind(task(make_dropout, test=data))
    data.cancel = cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(Cancelled):
        bound.workspace.evaluate(cancel)
    assert data.reads == 0
    assert bound.workspace.module().training


BAD_LOSSES = {
    r"has shape \(4,\)": lambda outputs, targets: cross_entropy(outputs, targets, reduction="none"),
    r"has shape \(1,\)": lambda outputs, targets: cross_entropy(outputs, targets).reshape(1),
    "returned a float": lambda outputs, targets: cross_entropy(outputs, targets).item(),
    "does not depend": lambda outputs, targets: cross_entropy(outputs.detach(), targets),
}


@pytest.mark.parametrize("message", BAD_LOSSES)
def test_a_loss_that_cannot_be_trained_on_is_refused(bind: Callable[..., Any], message: str) -> None:
    """The error names the field, what came, and the remedy."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        bind(task(loss=BAD_LOSSES[message])).compute(range(4))
    assert caught.value.field == "loss"


def test_a_loss_with_parameters_of_its_own_is_refused() -> None:
    """Nobody would train them."""
    with pytest.raises(ConfigurationError, match="make them part of the model") as caught:
        open_workspace(task(loss=nn.Bilinear(3, 1, 1)), 0, torch.device("cpu"))
    assert caught.value.field == "loss"


def test_a_loss_may_be_a_module_with_weights(bind: Callable[..., Any]) -> None:
    """Class weights are buffers of the loss, not parameters of the model."""
    weights = torch.tensor([1.0, 2.0, 3.0])
    bound = bind(task(loss=nn.CrossEntropyLoss(weight=weights)))
    assert bound.compute([0, 1, 2]).loss > 0
    assert not any("buffer" in key for key in bound.values)


class Transposed(nn.Module):
    """Two parameters over one memory, which torch's optimisers would step twice."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(5, 3, bias=False), nn.Linear(3, 5, bias=False)
        self.decoder.weight = nn.Parameter(self.encoder.weight.data.t())


@pytest.mark.parametrize("model", [Transposed, Transposed()], ids=["callable", "module"])
def test_two_parameters_over_one_memory_are_refused(model: Any) -> None:
    """Both ways of handing in a model; a copy of it would have two memories, and learn something else."""
    with pytest.raises(
        ConfigurationError, match="'encoder.weight' and 'decoder.weight' lie in the same memory"
    ) as caught:
        open_workspace(task(model), 0, torch.device("cpu"))
    assert caught.value.field == "model"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.ReLU, "no trainable parameters"),
        (lambda: make_mlp().requires_grad_(False), "no trainable parameters"),
        (lambda: "net", "The model is a str"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused(model: Any, message: str) -> None:
    """The error names the field before anything starts."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        open_workspace(task(model), 0, torch.device("cpu"))
    assert caught.value.field == "model"


def test_frozen_parameters_stay_where_they_are(bind: Callable[..., Any]) -> None:
    """Only what is trained is moved between processes."""

    def half_frozen() -> nn.Sequential:
        model = make_mlp()
        model[0].requires_grad_(False)
        return model

    bound = bind(task(half_frozen))
    assert {spec.name for spec in bound.workspace.specs} == {"2.weight", "2.bias"}
    assert bound.compute([0, 1]).loss > 0


def test_the_task_must_be_one() -> None:
    """Handing in a bare module is a mistake with a remedy."""
    with pytest.raises(ConfigurationError, match="The task is a Sequential") as caught:
        open_workspace(make_mlp(), 0, torch.device("cpu"))  # type: ignore[arg-type]  # the mistake under test
    assert caught.value.field == "task"


class _Frozen(nn.Module):
    """A layer behind a batch norm that its maker froze."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.norm.eval()
        self.line = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.line(self.norm(inputs))


def test_a_batch_norm_that_was_put_into_evaluation_mode_stays_there() -> None:
    """Also after an evaluation: running statistics of a frozen part are not trained."""
    data = np.ones((8, 4), np.float32), np.zeros(8, np.int64)
    task = SupervisedTask(_Frozen, nn.functional.cross_entropy, data, data)
    workspace = open_workspace(task, 0, torch.device("cpu"))
    layout = Layout.of(workspace.specs, shards=1)
    values, updates = allocate(layout), allocate(layout)
    fill(layout, values, workspace.initial())
    workspace.bind(layout, values, updates)
    workspace.evaluate(Cancellation())
    workspace.compute(BatchRef(np.arange(8), 1), Cancellation())
    module = workspace.module()
    assert module is not None
    assert module.training
    assert module.norm.running_mean.tolist() == [0.0] * 4
