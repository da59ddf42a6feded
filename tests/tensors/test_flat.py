"""Modules whose tensors are views of flat vectors."""

from __future__ import annotations

import copy
import gc
import math
import warnings
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from psplatform.errors import ConfigurationError
from psplatform.tensors.flat import FlatModel, require_apart, specs_of, stand_in_of, tensors_of, trainable_parameters
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate, fill, named_views


class Tied(nn.Module):
    """Two names for one weight, as language models share embedding and output."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(11, 5)
        self.decoder = nn.Linear(5, 11)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token."""
        logits: Tensor = self.decoder(self.encoder(tokens))
        return logits


class Replacing(nn.Module):
    """Replaces its buffer instead of writing into it, and has one that is not part of the state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(9), persistent=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the linear map, and count the call."""
        self.count = self.count + 1
        output: Tensor = self.linear(inputs)
        return output


def convolutional() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 4))


def bind(module: nn.Module, shards: int = 2) -> FlatModel:
    """Bind a module to vectors that hold its own values."""
    layout = Layout.of(specs_of(module), shards=shards)
    values = allocate(layout)
    fill(layout, values, tensors_of(module))
    return FlatModel(module, layout, values, allocate(layout))


def backward(module: nn.Module, inputs: Tensor) -> None:
    module(inputs).square().mean().backward()


def test_parameters_buffers_and_gradients_are_views_of_the_vectors() -> None:
    flat = bind(convolutional())
    for vector in (*flat.values.values(), *flat.updates.values()):
        vector.fill_(1)
    state = flat.module.state_dict()
    assert all(bool((tensor == 1).all()) for tensor in state.values())
    gradients = [parameter.grad for parameter in flat.module.parameters()]
    assert all(gradient is not None and bool(gradient.eq(1).all()) for gradient in gradients)


def test_binding_takes_on_what_the_vectors_hold_and_changes_none_of_it() -> None:
    module = convolutional()
    layout = Layout.of(specs_of(module), shards=1)
    values = {key: vector.fill_(2) for key, vector in allocate(layout).items()}
    FlatModel(module, layout, values, allocate(layout))
    assert all(bool((tensor == 2).all()) for tensor in module.state_dict().values())


def test_a_bound_module_computes_what_the_free_one_computes() -> None:
    """Outputs, gradients and the running statistics of batch norm have the same bits, over several batches."""
    free = convolutional()
    flat = bind(copy.deepcopy(free))
    for _ in range(3):
        inputs = torch.randn(5, 1, 8, 8)
        free.zero_grad()
        flat.zero_gradients()
        backward(free, inputs)
        backward(flat.module, inputs)
        flat.collect()
        gradients = named_views(flat.layout, flat.updates, "parameter")
        buffers = named_views(flat.layout, flat.updates, "buffer")
        assert all(torch.equal(gradients[name], p.grad) for name, p in free.named_parameters() if p.grad is not None)
        assert all(torch.equal(buffers[name], b) for name, b in free.named_buffers())
    assert buffers["1.num_batches_tracked"] == 3


def test_loading_replaces_parameters_and_buffers() -> None:
    flat, other = bind(convolutional()), bind(nn.Sequential(*convolutional().children()))
    for vector in other.values.values():
        vector.fill_(3)
    flat.load(other.values)
    assert all(bool((tensor == 3).all()) for tensor in flat.module.state_dict().values())


def test_gradients_accumulate_over_micro_batches() -> None:
    flat, free = bind(nn.Linear(3, 2)), nn.Linear(3, 2)
    free.load_state_dict(flat.module.state_dict())
    for _ in range(3):
        inputs = torch.randn(4, 3)
        backward(flat.module, inputs)
        backward(free, inputs)
    flat.collect()
    gradients = named_views(flat.layout, flat.updates, "parameter")
    assert all(torch.equal(gradients[name], p.grad) for name, p in free.named_parameters() if p.grad is not None)


def _replace(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)


def _forget_and_recompute(module: nn.Module) -> None:
    module.zero_grad(set_to_none=True)
    for parameter in module.parameters():
        (7 * parameter.sum()).backward()


@pytest.mark.parametrize("user_code", [_replace, _forget_and_recompute])
def test_gradients_that_user_code_replaced_are_collected_and_bound_again(
    user_code: Callable[[nn.Module], None],
) -> None:
    flat = bind(nn.Linear(3, 2))
    backward(flat.module, torch.randn(4, 3))
    user_code(flat.module)
    flat.collect()
    assert bool((flat.updates["parameter.float32"] == 7).all())
    flat.updates["parameter.float32"].zero_()
    assert not any(parameter.grad.any() for parameter in flat.module.parameters() if parameter.grad is not None)


def test_a_gradient_that_was_removed_counts_as_zero() -> None:
    flat = bind(nn.Linear(3, 2))
    backward(flat.module, torch.randn(4, 3))
    flat.module.zero_grad(set_to_none=True)
    flat.collect()
    assert not flat.updates["parameter.float32"].any()


def test_zero_gradients_binds_removed_gradients_again() -> None:
    flat = bind(nn.Linear(3, 2))
    flat.module.zero_grad(set_to_none=True)
    flat.zero_gradients()
    backward(flat.module, torch.randn(4, 3))
    assert flat.updates["parameter.float32"].any()


def test_sparse_gradients_are_collected_densely() -> None:
    module = nn.Embedding(5, 2, sparse=True)
    flat = bind(module)
    module.zero_grad(set_to_none=True)
    backward(module, torch.tensor([1, 1, 3]))
    flat.collect()
    gradient = named_views(flat.layout, flat.updates)["weight"]
    assert gradient.any(dim=1).tolist() == [False, True, False, True, False]


def test_tied_weights_take_part_once_and_stay_tied() -> None:
    torch.manual_seed(0)
    free = Tied()
    module = copy.deepcopy(free)
    assert [spec.name for spec in specs_of(module)] == ["encoder.weight", "decoder.bias"]
    flat = bind(module)
    backward(free, torch.tensor([1, 2, 3]))
    backward(module, torch.tensor([1, 2, 3]))
    flat.collect()
    assert module.decoder.weight is module.encoder.weight
    gradient = named_views(flat.layout, flat.updates)["encoder.weight"]
    assert free.encoder.weight.grad is not None
    assert torch.equal(gradient, free.encoder.weight.grad)


def test_parameters_that_lie_beside_each_other_in_one_memory_are_no_overlap() -> None:
    """Those of an LSTM do after flattening on a GPU; here the columns of one matrix alternate."""
    memory = torch.zeros(3, 4)
    require_apart(nn.ParameterList([nn.Parameter(memory[:, ::2]), nn.Parameter(memory[:, 1::2])]))
    with pytest.raises(ConfigurationError, match="'0' and '1' lie in the same memory"):
        require_apart(nn.ParameterList([nn.Parameter(memory[:, ::2]), nn.Parameter(memory[:, 2:])]))


def test_frozen_parameters_stay_out_of_the_vectors() -> None:
    first = nn.Linear(3, 2).requires_grad_(False)
    module = nn.Sequential(first, nn.Linear(2, 1))
    assert [spec.name for spec in specs_of(module)] == ["1.weight", "1.bias"]
    frozen = first.weight.clone()
    flat = bind(module)
    flat.values["parameter.float32"].fill_(9)
    backward(module, torch.randn(4, 3))
    flat.collect()
    assert torch.equal(first.weight, frozen)
    assert first.weight.grad is None


def test_a_buffer_that_the_module_replaces_is_followed() -> None:
    """Before the next batch it is bound again, so that what is loaded reaches the module."""
    module = Replacing()
    flat = bind(module)
    assert [spec.name for spec in specs_of(module) if spec.kind == "buffer"] == ["count"]
    for expected in (1, 2):
        backward(module, torch.randn(2, 3))
        flat.collect()
        assert flat.updates["buffer.float32"].tolist() == [expected]
    flat.values["buffer.float32"].fill_(40)
    backward(module, torch.randn(2, 3))
    flat.collect()
    assert flat.updates["buffer.float32"].tolist() == [41]


def test_groups_decide_the_order_of_parameters() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    layout = Layout.of(specs_of(module, [1, 0, 1, 0]), shards=1)
    assert [entry.name for entry in layout.regions[0].entries] == ["0.bias", "1.bias", "0.weight", "1.weight"]
    assert list(trainable_parameters(module)) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_the_gradients_norm_has_the_same_bits_for_every_number_of_shards() -> None:
    module = nn.Sequential(convolutional(), nn.Linear(4, 2, dtype=torch.float64))
    norms = set()
    for shards in (1, 2, 3, 5):
        flat = bind(copy.deepcopy(module), shards)
        for number, vector in enumerate(flat.updates.values()):
            vector.copy_(torch.randn(vector.shape, generator=torch.Generator().manual_seed(number)))
        norms.add(flat.gradient_norm())
    (norm,) = norms
    squares = [v.double().square().sum() for key, v in flat.updates.items() if key.startswith("parameter")]
    assert norm == pytest.approx(math.sqrt(sum(squares)), rel=1e-12)


def test_the_gradients_norm_tells_whether_the_gradient_is_finite() -> None:
    flat = bind(nn.Linear(3, 2))
    assert flat.gradient_norm() == 0
    next(flat.module.parameters()).grad[1, 1] = math.nan  # type: ignore[index]  # bound, so not None
    assert not math.isfinite(flat.gradient_norm())


def test_a_module_unlike_the_layout_is_refused() -> None:
    layout = Layout.of(specs_of(nn.Linear(3, 2)), shards=1)
    for other in (
        nn.Linear(3, 3),
        nn.Linear(3, 2, bias=False),
        nn.Linear(3, 2, dtype=torch.float64),
        nn.BatchNorm1d(2),
    ):
        with pytest.raises(ConfigurationError, match="not those of the layout") as caught:
            FlatModel(other, layout, allocate(layout), allocate(layout))
        assert caught.value.field == "model"


def test_a_parameter_without_a_shape_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some releases of torch call lazy modules experimental
        module = nn.LazyLinear(3)
    with pytest.raises(ConfigurationError, match="run one batch") as caught:
        specs_of(module)
    assert caught.value.field == "model"


def test_parameters_turn_to_other_vectors_and_back_and_buffers_stay() -> None:
    flat = bind(convolutional(), shards=1)
    first = dict(flat.values)
    second = {key: vector.clone() if key.startswith("parameter") else vector for key, vector in first.items()}
    second["parameter.float32"].fill_(2)
    buffer = dict(flat.module.named_buffers())["1.running_mean"]
    for values, is_second in ((second, True), (first, False), (second, True)):
        flat.turn_to(values)
        assert all(bool((one == 2).all()) is is_second for one in flat.module.parameters() if one.dim() > 1)
        assert dict(flat.module.named_buffers())["1.running_mean"] is buffer
        flat.zero_gradients()
        backward(flat.module, torch.randn(5, 1, 8, 8))
        flat.collect()
        assert bool(flat.updates["parameter.float32"].ne(0).any()), "gradients lie where they did"


def test_of_vectors_that_were_turned_from_for_good_nothing_is_kept() -> None:
    flat = bind(convolutional(), shards=1)
    one = {key: vector.clone() for key, vector in flat.values.items()}
    gone = weakref.ref(one["parameter.float32"])
    flat.turn_to(one)
    flat.turn_to(dict(flat.values | {"parameter.float32": one["parameter.float32"].clone()}), alone=True)
    del one
    gc.collect()
    assert gone() is None


def test_a_module_that_is_only_evaluated_needs_no_room_for_gradients() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    layout = Layout.of(specs_of(module), shards=1)
    flat = FlatModel(module, layout, allocate(layout), None)
    flat.zero_gradients()
    assert flat.collect() == []
    assert all(parameter.grad is None for parameter in module.parameters())


def test_those_whose_gradients_were_replaced_are_named_whatever_their_groups() -> None:
    module = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    layout = Layout.of(specs_of(module, groups=[1, 0, 1, 0]), shards=1)
    updates = allocate(layout)
    flat = FlatModel(module, layout, allocate(layout), updates)
    last = module[1].weight
    last.grad = torch.ones_like(last)
    assert flat.collect() == ["1.weight"]
    assert float(named_views(layout, updates)["1.weight"].sum()) == 3


def test_what_stands_for_a_tensor_is_like_it_and_small() -> None:
    parameter = nn.Parameter(torch.ones(50, 40, dtype=torch.float64), requires_grad=False)
    parameter.note = "kept"  # type: ignore[attr-defined]
    for tensor in (parameter, torch.ones(7)):
        make, arguments = stand_in_of(tensor)
        made = make(*arguments)
        assert (type(made), made.shape, made.dtype) == (type(tensor), tensor.shape, tensor.dtype)
        assert made.requires_grad == tensor.requires_grad
        assert made.untyped_storage().nbytes() == made.element_size()
        assert vars(made) == vars(tensor)


def test_gradients_that_are_taken_one_by_one_add_up() -> None:
    module = nn.Sequential(nn.Embedding(5, 3, sparse=True), nn.Linear(3, 1), nn.Linear(1, 1))
    layout = Layout.of(specs_of(module), shards=1)
    values, updates = allocate(layout), allocate(layout)
    fill(layout, values, {name: tensor.clone() for name, tensor in tensors_of(module).items()})
    flat = FlatModel(module, layout, values, updates)
    views = named_views(layout, updates)
    for vector in updates.values():
        vector.fill_(7)  # of the gradient before
    flat.expect_gradients()
    for part in (torch.tensor([0, 1]), torch.tensor([1, 4])):
        module[1](module[0](part)).sum().backward()
        for name in ("0.weight", "1.weight"):
            flat.take(name)
    expected = module[1].weight.detach().expand(2, 3)
    assert flat.collect() == ["1.bias", "2.weight", "2.bias"]
    assert torch.equal(views["0.weight"][[0, 4]], expected)
    assert torch.equal(views["0.weight"][1], 2 * expected[0])
    assert float(views["1.bias"]) == 4
    assert float(views["2.weight"]) == 0, "nothing led there"
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() == views[name].data_ptr()
