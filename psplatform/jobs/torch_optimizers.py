"""Classes and objects of `torch.optim`, translated into the optimisers that the servers run.

Only the options are taken over.  What a translation could not keep is refused: a state that the object has gathered, a
schedule attached to it, an option or a class without a counterpart.  This module loads no torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from glob import escape
from typing import Any, Final

from psplatform.core.parameters import parameters_of
from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import SGD, AdaGrad, Adam, AdamW, Group, Optimizer, RMSProp

_KINDS: Final[Mapping[str, type[Optimizer]]] = {
    "SGD": SGD,
    "Adam": Adam,
    "AdamW": AdamW,
    "Adagrad": AdaGrad,
    "RMSprop": RMSProp,
}

_FOR_SPEED: Final = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Options that change how torch computes and not what."""

_BOOKKEEPING: Final = frozenset({"params", "param_names"})


def translated(given: Any, model: Any = None) -> Any:
    """Return the optimiser that a class or object of `torch.optim` stands for; anything else is returned as it is.

    Parameters
    ----------
    given
        A class, an object, or a `functools.partial` of a class, which then has options.
    model
        The job's model; where it is a module, it tells the names of the parameters in an object's groups.

    Raises
    ------
    ConfigurationError
        If there is nothing that does the same here; the message says what to write.
    """
    kind, options = (given.func, given.keywords) if isinstance(given, partial) else (given, {})
    if isinstance(kind, type):
        return _of_class(kind, options) if _is_of_torch(kind) else given
    return _of_object(given, model) if _is_of_torch(type(given)) else given


def _is_of_torch(kind: type) -> bool:
    return any(one.__module__ == "torch.optim.optimizer" and one.__name__ == "Optimizer" for one in kind.__mro__)


def _of_class(kind: type, options: Mapping[str, Any]) -> Optimizer:
    counterpart = _counterpart(kind)
    usual = {
        name: one.default
        for name, one in inspect.signature(kind).parameters.items()
        if name != "params" and one.default is not inspect.Parameter.empty
    }
    return counterpart(**_options(kind, counterpart, {**usual, **options}))


def _of_object(given: Any, model: Any) -> Optimizer:
    kind = type(given)
    counterpart = _counterpart(kind)
    if any(_has_stepped(state) for state in given.state.values()):
        raise _refusal(kind, "has taken steps already, whose state is not taken over", "give one that is new")
    groups = [(group, _options(kind, counterpart, group)) for group in given.param_groups]
    if all(options == groups[0][1] for _, options in groups):
        _require_all(kind, [group for group, _ in groups], model)
        return counterpart(**groups[0][1])
    return _of_groups(kind, counterpart, groups, model)


def _of_groups(
    kind: type, counterpart: type[Optimizer], groups: Sequence[tuple[Mapping[str, Any], dict[str, Any]]], model: Any
) -> Optimizer:
    named = [(_names(kind, group, model), options) for group, options in groups]
    _require_all(kind, [group for group, _ in groups], model)
    names, base = max(named, key=lambda one: len(one[0]))
    exceptions = [(others, options) for others, options in named if others is not names]
    different = [
        Group(
            [escape(name) for name in others],
            **{key: value for key, value in options.items() if value != base.get(key)},
        )
        for others, options in exceptions
        if options != base
    ]
    return counterpart(**base, groups=tuple(different))


def _names(kind: type, group: Mapping[str, Any], model: Any) -> list[str]:
    if "param_names" in group:
        return list(group["param_names"])
    known = {id(parameter): name for name, parameter in _parameters_of(model)}
    try:
        return [known[id(parameter)] for parameter in group["params"]]
    except KeyError:
        what = "has parameter groups whose parameters cannot be told by name"
        written = f"ps.{_KINDS[kind.__name__].__name__}(groups=[ps.Group(...)])"
        raise _refusal(kind, what, f"make it of model.named_parameters(), or write {written}") from None


def _require_all(kind: type, groups: Iterable[Mapping[str, Any]], model: Any) -> None:
    """Raise if the object leaves out a parameter that the model trains: here the servers would step it."""
    held = {id(parameter) for group in groups for parameter in group["params"]}
    trained = [(name, one) for name, one in _parameters_of(model) if one.requires_grad]
    if not any(id(one) in held for _, one in trained):
        return  # of another copy of the model, or the model is built elsewhere
    for name, parameter in trained:
        if id(parameter) not in held:
            raise _refusal(
                kind, f"leaves out the parameter {name!r}", "switch its requires_grad off, or put it into a group"
            )


def _parameters_of(model: Any) -> Iterator[tuple[str, Any]]:
    named = getattr(model, "named_parameters", None)
    return iter(()) if isinstance(model, type) or named is None else named()


def _counterpart(kind: type) -> type[Optimizer]:
    counterpart = _KINDS.get(kind.__name__)
    if counterpart is None or not kind.__module__.startswith("torch.optim."):
        known = ", ".join(f"ps.{one.__name__}" for one in _KINDS.values())
        raise _refusal(kind, "cannot be translated", f"write one of {known}, or base your own on ps.CustomOptimizer")
    return counterpart


def _options(kind: type, counterpart: type[Optimizer], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options under the names used here, without those that do not matter."""
    if "initial_lr" in given:
        raise _refusal(kind, "has a schedule attached", "give the job schedule=ps.Cosine(...) or another instead")
    hypers = {one.name for one in parameters_of(counterpart)}
    found = {}
    for name, value in given.items():
        if name in hypers:
            found[name] = _plain(value)
        elif name in _FOR_SPEED or name in _BOOKKEEPING or _says_nothing(counterpart, name, value):
            continue
        else:
            raise _refusal(kind, f"has {name}={value!r}, which the servers do not know", f"leave {name} out")
    return found


def _says_nothing(counterpart: type[Optimizer], name: str, value: Any) -> bool:
    if name == "decoupled_weight_decay":
        return bool(value) == (counterpart is AdamW)
    return value is False or value is None


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return value.item() if hasattr(value, "item") else value


def _has_stepped(state: Mapping[str, Any]) -> bool:
    if "step" in state:  # Adagrad has a state from the beginning
        return float(state["step"]) > 0
    return any(value is not None for value in state.values())


def _refusal(kind: type, what: str, remedy: str) -> ConfigurationError:
    home = "torch.optim" if kind.__module__.startswith("torch.optim.") else kind.__module__
    return ConfigurationError(f"the optimizer {home}.{kind.__name__} {what}; {remedy}", field="optimizer")
