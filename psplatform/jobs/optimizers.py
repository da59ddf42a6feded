"""Which optimiser the servers run, with which hyper-parameters, for which parameters.

A specification is light: it neither loads torch nor computes; the equations are in `psplatform.tensors.optimizers`.
Names, meanings and defaults follow `torch.optim`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from psplatform.core.parameters import parameter, parameters_of, require_known, require_names, settle
from psplatform.errors import ConfigurationError


@dataclass(frozen=True, slots=True, init=False)
class Group:
    """Hyper-parameters that differ for some parameters.

    Parameters
    ----------
    match
        Pattern on parameter names as in `fnmatch`, such as `"*.bias"` or `"encoder.*"`, or several; case matters.
    **options
        Hyper-parameters of the optimiser, such as `weight_decay=0`.
    """

    match: str | tuple[str, ...]
    options: Mapping[str, Any] = field(hash=False)

    def __init__(self, match: str | Sequence[str], **options: float | tuple[float, float]) -> None:
        several = tuple(match) if isinstance(match, list | tuple) else (match,)
        if not several or not all(isinstance(one, str) and one for one in several):
            remedy = "give a pattern such as '*.bias', or a list of them"
            raise ConfigurationError(f"A group's match must be a text, not {match!r}; {remedy}.", field="match")
        object.__setattr__(self, "match", match if isinstance(match, str) else several)
        tuples = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
        object.__setattr__(self, "options", tuples)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns, of which one must match."""
        return (self.match,) if isinstance(self.match, str) else self.match

    def holds(self, name: str) -> bool:
        """Return whether the parameter of that name belongs to this group, if to none before it."""
        return any(fnmatchcase(name, pattern) for pattern in self.patterns)


def _number(default: float | tuple[float, float], help: str, **limits: Any) -> Any:
    return parameter(default, minimum=0, finite=True, help=help, remedy=f"try {default}", **limits)


def _weight_decay() -> Any:
    return _number(0.0, "how much of the parameters is added to their gradient")


def _betas() -> Any:
    return _number((0.9, 0.999), "how much the running means keep", below=1.0)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Base of the specifications.

    Parameters
    ----------
    groups
        Exceptions for parameters by name; the first whose pattern matches decides.

    Raises
    ------
    ConfigurationError
        If a hyper-parameter is unknown, of the wrong type or out of range.
    """

    name: ClassVar[str]

    groups: tuple[Group, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        settle(self)
        self._check_together()
        object.__setattr__(self, "groups", tuple(self.groups))
        if self.groups:
            self.members()

    def _check_together(self) -> None:
        """Raise if hyper-parameters, each in its range, do not fit together."""

    def members(self) -> tuple[Optimizer, ...]:
        """Return the hyper-parameters of each group as specifications without groups; group 0 is what none matches."""
        base = replace(self, groups=())
        return (base, *(_overridden(base, number, group) for number, group in enumerate(self.groups)))

    def to_plain(self) -> dict[str, Any]:
        """Return name, hyper-parameters and groups as numbers, strings, lists and dicts."""
        plain = {hyper.name: getattr(self, hyper.name) for hyper in parameters_of(type(self))}
        groups = [{"match": group.match, **group.options} for group in self.groups]
        return {"name": self.name, **_listed(plain), "groups": [_listed(group) for group in groups]}

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Optimizer:
        """Return the optimiser that `to_plain`, or a job file, describes."""
        options = dict(plain)
        name = options.pop("name", None)
        require_known(name, OPTIMIZERS, "There is no optimizer", field="optimizer")
        kind = OPTIMIZERS[str(name)]
        groups = tuple(_group(number, group) for number, group in enumerate(options.pop("groups", ())))
        require_names(kind, options, f"{kind.name} has no hyper-parameter")
        return kind(**options, groups=groups)


@dataclass(frozen=True, slots=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if asked for."""

    name: ClassVar[str] = "sgd"

    lr: float = _number(0.05, "learning rate")
    momentum: float = _number(0.0, "how much of the last step is kept", below=1.0)
    dampening: float = _number(0.0, "how much of the gradient momentum leaves out", maximum=1.0)
    nesterov: bool = parameter(default=False, help="look ahead along the momentum")
    weight_decay: float = _weight_decay()

    def _check_together(self) -> None:
        if self.nesterov and (not self.momentum or self.dampening):
            message = "nesterov needs momentum above 0 and dampening 0; set momentum=0.9, or nesterov=False."
            raise ConfigurationError(message, field="nesterov")


@dataclass(frozen=True, slots=True)
class Adam(Optimizer):
    """Steps scaled by running means of the gradient and of its square."""

    name: ClassVar[str] = "adam"

    lr: float = _number(1e-3, "learning rate")
    betas: tuple[float, float] = _betas()
    eps: float = _number(1e-8, "keeps the divisor above zero")
    weight_decay: float = _weight_decay()


@dataclass(frozen=True, slots=True)
class AdamW(Optimizer):
    """Adam whose weight decay shrinks the parameters themselves instead of entering the running means."""

    name: ClassVar[str] = "adamw"

    lr: float = _number(1e-3, "learning rate")
    betas: tuple[float, float] = _betas()
    eps: float = _number(1e-8, "keeps the divisor above zero")
    weight_decay: float = _number(1e-2, "share, times the learning rate, by which each step shrinks the parameters")


@dataclass(frozen=True, slots=True)
class AdaGrad(Optimizer):
    """Steps scaled by the sum of all squared gradients."""

    name: ClassVar[str] = "adagrad"

    lr: float = _number(1e-2, "learning rate")
    lr_decay: float = _number(0.0, "how fast the learning rate falls with the number of commits")
    eps: float = _number(1e-10, "keeps the divisor above zero")
    initial_accumulator_value: float = _number(0.0, "where the sum of squares begins")
    weight_decay: float = _weight_decay()


@dataclass(frozen=True, slots=True)
class RMSProp(Optimizer):
    """Steps scaled by a running mean of the squared gradient."""

    name: ClassVar[str] = "rmsprop"

    lr: float = _number(1e-2, "learning rate")
    alpha: float = _number(0.99, "how much the running mean keeps", below=1.0)
    eps: float = _number(1e-8, "keeps the divisor above zero")
    momentum: float = _number(0.0, "how much of the last step is kept", below=1.0)
    centered: bool = parameter(default=False, help="scale by the variance instead of the mean square")
    weight_decay: float = _weight_decay()


@dataclass(frozen=True, slots=True)
class Additive(Optimizer):
    """What tasks push is added as it is, times the commit's rate."""

    name: ClassVar[str] = "additive"


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.name: kind for kind in (SGD, Adam, AdamW, AdaGrad, RMSProp, Additive)}


def assign_groups(spec: Optimizer, names: Sequence[str]) -> list[int]:
    """Return each parameter's group: 1 + the number of the first pattern that matches its name, or 0.

    Raises
    ------
    ConfigurationError
        If a pattern matches no parameter at all.
    """
    for number, group in enumerate(spec.groups):
        unused = [one for one in group.patterns if not any(fnmatchcase(name, one) for name in names)]
        if unused:
            known = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
            message = f"No parameter matches the group {unused[0]!r}; choose from {known or 'none'}."
            raise ConfigurationError(message, field=f"groups[{number}].match")
    return [next((1 + i for i, group in enumerate(spec.groups) if group.holds(name)), 0) for name in names]


def _overridden(base: Optimizer, number: int, group: Group) -> Optimizer:
    try:
        require_names(type(base), group.options, f"{base.name} has no hyper-parameter")
        return replace(base, **group.options)
    except ConfigurationError as error:
        message = f"In the group {group.match!r}: {error}"
        raise ConfigurationError(message, field=f"groups[{number}].{error.field}") from None


def _group(number: int, plain: Mapping[str, Any]) -> Group:
    options = dict(plain)
    match = options.pop("match", None)
    try:
        return Group(match, **options)
    except ConfigurationError as error:
        raise ConfigurationError(str(error), field=f"groups[{number}].match") from None


def _listed(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}
