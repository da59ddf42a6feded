"""An `nn.Module` whose parameters and buffers are views of flat vectors, and whose gradients end in such views.

What takes part: parameters that require a gradient when the layout is made, and persistent buffers.  Tied tensors take
part once.  Frozen parameters and non-persistent buffers stay the module's own, as its constructor made them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from psplatform.errors import ConfigurationError
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.norms import norm, squared_norms
from psplatform.tensors.vectors import named_views, spec_of


def trainable_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that require a gradient, tied ones once, under their first name."""
    found = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    for name, parameter in found.items():
        if nn.parameter.is_lazy(parameter):
            remedy = "run one batch through the model where it is built"
            raise ConfigurationError(f"The parameter {name!r} has no shape yet; {remedy}.", field="model")
    return found


def require_apart(module: nn.Module) -> None:
    """Raise if two trainable parameters share elements of one memory; one parameter under two names is fine.

    In a copy of the module each would have a memory of its own, so that what one learns the other would not.

    Raises
    ------
    ConfigurationError
        With the names of the two.
    """
    found: dict[tuple[int, torch.dtype], dict[str, Tensor]] = {}
    for name, parameter in trainable_parameters(module).items():
        if parameter.layout == torch.strided and parameter.device.type != "meta" and parameter.numel():
            memory = parameter.untyped_storage().data_ptr(), parameter.dtype
            found.setdefault(memory, {})[name] = parameter.detach()
    for tensors in found.values():
        if len(tensors) > 1:
            _require_apart_in_one_memory(tensors)


def _require_apart_in_one_memory(tensors: Mapping[str, Tensor]) -> None:
    names = list(tensors)
    size = max(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in tensors.values())
    owners = torch.full((size,), -1, dtype=torch.int32)
    for number, (name, tensor) in enumerate(tensors.items()):
        elements = owners.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        owner = int(elements.max())
        if owner >= 0:
            remedy = (
                "hold one nn.Parameter under both names (b.weight = a.weight); transpose it in forward() if need be"
            )
            raise ConfigurationError(
                f"The parameters {names[owner]!r} and {name!r} lie in the same memory; {remedy}.", field="model"
            )
        elements.fill_(number)


def persistent_buffers(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers that belong to the module's state, tied ones once, under their first name."""
    state = module.state_dict(keep_vars=True)
    return {name: buffer for name, buffer in module.named_buffers() if name in state}


def specs_of(module: nn.Module, groups: Sequence[int] | None = None) -> list[TensorSpec]:
    """Return the specs of all tensors that take part.

    Parameters
    ----------
    groups
        Parameter group of each of `trainable_parameters(module)`, in order; 0 for all by default.
    """
    parameters = trainable_parameters(module)
    chosen = [0] * len(parameters) if groups is None else groups
    specs = [
        spec_of(name, tensor, "parameter", group)
        for (name, tensor), group in zip(parameters.items(), chosen, strict=True)
    ]
    return specs + [spec_of(name, tensor, "buffer") for name, tensor in persistent_buffers(module).items()]


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return all tensors that take part, by name; `vectors.fill` packs them."""
    return {**trainable_parameters(module), **persistent_buffers(module)}


def stand_in_of(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[Any, ...]]:
    """Return a function and arguments that make a tensor like it, all zero, in the memory of one element."""
    is_parameter = isinstance(tensor, nn.Parameter)
    return _stand_in, (tuple(tensor.shape), tensor.dtype, is_parameter, tensor.requires_grad, vars(tensor))


def _stand_in(
    shape: tuple[int, ...], dtype: torch.dtype, is_parameter: bool, requires_grad: bool, attributes: dict[str, Any]
) -> Tensor:
    tensor = torch.zeros((), dtype=dtype).expand(shape)
    made = nn.Parameter(tensor, requires_grad) if is_parameter else tensor
    vars(made).update(attributes)
    return made


def skeleton_of(module: nn.Module, stand_ins: Mapping[int, tuple[Callable[..., Tensor], tuple[Any, ...]]]) -> nn.Module:
    """Return a copy of a module without the numbers of those of its tensors that have a stand-in, by their ids."""
    return copy.deepcopy(module, {tensor: make(*arguments) for tensor, (make, arguments) in stand_ins.items()})


def with_memory(skeleton: nn.Module) -> nn.Module:
    """Return a copy of a module in which every tensor that takes part has memory of its own; stand-ins become zeros."""
    module = copy.deepcopy(skeleton)
    for tensor in tensors_of(module).values():
        if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            tensor.data = torch.zeros(tensor.shape, dtype=tensor.dtype)
    return module


class FlatModel:
    """A module bound to flat vectors.

    Parameters
    ----------
    module
        Takes on what `values` hold; its own initial values are no longer used.
    layout
        Made of `specs_of(module)` or of those of an equal module.
    values
        Whole regions; private to this process, since batch norm writes into its buffers while it computes.
    updates
        Whole regions: gradients of the parameters, and the buffers' values once `collect` was called.  ``None`` for a
        module that is only evaluated.

    Raises
    ------
    ConfigurationError
        If the module's tensors are not those of the layout.
    """

    def __init__(
        self, module: nn.Module, layout: Layout, values: Mapping[str, Tensor], updates: Mapping[str, Tensor] | None
    ) -> None:
        self.module = module
        self.layout = layout
        self.values = dict(values)
        self.updates = dict(updates or {})
        parameters, buffers = trainable_parameters(module), persistent_buffers(module)
        _check_same(layout, {**parameters, **buffers})
        views = named_views(layout, values)
        gradients = named_views(layout, updates, "parameter") if updates is not None else {}
        for name, tensor in {**parameters, **buffers}.items():
            tensor.data = views[name]  # keeps the tensor's identity, so that whatever is tied stays tied
        self._parameters = parameters
        self._views = [(values, [views[name] for name in parameters])]
        self._gradients = {name: (parameters[name], gradient) for name, gradient in gradients.items()}
        self._buffers = [(*_owner(module, name), buffer) for name, buffer in buffers.items()]
        self.zero_gradients()

    def turn_to(self, values: Mapping[str, Tensor], *, alone: bool = False) -> None:
        """Make the parameters views of other vectors.  The buffers of both are the same.

        The views of the last two are kept, so that turning from one to the other and back costs little; if `alone`,
        only these.
        """
        found = next((views for known, views in self._views if known is values), None)
        if found is None:
            views = named_views(self.layout, values, "parameter")
            found = [views[name] for name in self._parameters]
            self._views = [*self._views[-1:], (values, found)]
        if alone:
            self._views = [(values, found)]
        for parameter, view in zip(self._parameters.values(), found, strict=True):
            parameter.data = view
        self.values = dict(values)

    def load(self, values: Mapping[str, Tensor]) -> None:
        """Copy parameters and buffers in, for instance a version that was pulled."""
        for key, vector in self.values.items():
            vector.copy_(values[key])

    def zero_gradients(self) -> None:
        """Set all gradients to zero and bind them to `updates`, whatever user code did to them."""
        for region in self.layout.regions:
            if region.kind == "parameter" and region.key in self.updates:
                self.updates[region.key].zero_()
        for parameter, view in self._gradients.values():
            parameter.grad = view

    def expect_gradients(self) -> None:
        """Let autograd make the first gradient of each parameter anew.

        That is less work than to zero `updates` and to add to them what autograd has made elsewhere.
        """
        for parameter, _ in self._gradients.values():
            parameter.grad = None

    @torch.no_grad()
    def take(self, name: str) -> None:
        """Copy a parameter's gradient into `updates`, and bind it there: what is added to it later is added there."""
        parameter, view = self._gradients[name]
        if parameter.grad is not None and parameter.grad is not view:
            view.copy_(parameter.grad.to_dense())
            parameter.grad = view

    @torch.no_grad()
    def collect(self) -> list[str]:
        """Complete `updates` after a backward pass; return the names of parameters whose gradients were not there yet.

        Gradients that were taken or accumulated in place are there already.  One that was replaced is copied and bound
        again, one that was removed counts as zero.  Buffers that the module replaced instead of writing into them are
        taken over.
        """
        changed = [name for name, (parameter, view) in self._gradients.items() if parameter.grad is not view]
        for name in changed:
            self.take(name)
        for parameter, view in self._gradients.values():
            if parameter.grad is None:
                view.zero_()
                parameter.grad = view
        self._take_buffers()
        return changed

    def _take_buffers(self) -> None:
        for owner, name, buffer in self._buffers:
            current = getattr(owner, name)
            if current is not buffer:
                buffer.copy_(current)
                setattr(owner, name, buffer)
        for region in self.layout.regions:
            if region.kind == "buffer" and region.key in self.updates:
                self.updates[region.key].copy_(self.values[region.key])

    def gradient_norm(self) -> float:
        """Return the Euclidean norm of the gradient, accumulated in float64; not finite if the gradient is not."""
        return norm(
            square
            for region in self.layout.regions
            if region.kind == "parameter"
            for square in squared_norms(self.updates[region.key], self.layout.block_size(region.key))
        )


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf


def _check_same(layout: Layout, tensors: Mapping[str, Tensor]) -> None:
    expected = {(e.name, e.shape, region.dtype) for region in layout.regions for e in region.entries}
    specs = [spec_of(name, tensor) for name, tensor in tensors.items()]
    found = {(spec.name, spec.shape, spec.dtype) for spec in specs}
    if found != expected:
        name = min(found ^ expected)[0]
        remedy = "build the same model in every process"
        raise ConfigurationError(
            f"The model's tensors are not those of the layout, as {name!r} shows; {remedy}.", field="model"
        )
