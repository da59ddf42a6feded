"""Learning-rate schedules of a job: factors on the learning rate as pure functions of updates and epochs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final

from psplatform.core.parameters import built, parameter, require_known, settle
from psplatform.core.rates import FACTOR, is_factor
from psplatform.errors import ConfigurationError


def _warmup() -> Any:
    return parameter(0, minimum=0, help="updates of a linear warm-up to begin with; 0: none")


def _settle(schedule: object) -> None:
    settle(schedule, "schedule.", field="schedule")


@dataclass(frozen=True, slots=True)
class Constant:
    """The learning rate stays as it is, after a linear warm-up over `warmup` updates (0: none)."""

    warmup: int = _warmup()

    def __post_init__(self) -> None:
        _settle(self)

    def factor(self, updates: int, epochs: float) -> float:
        """Return the factor after `updates` updates and `epochs` passes over the data."""
        return _warm(self.warmup, updates)


@dataclass(frozen=True, slots=True)
class StepDecay:
    """The learning rate is multiplied by `gamma` at each of the `milestones`, counted in epochs."""

    milestones: tuple[float, ...] = parameter(
        (30.0, 60.0), above=0, finite=True, help="epochs after which the learning rate falls"
    )
    gamma: float = parameter(0.1, above=0, maximum=1, help="factor on the learning rate at each milestone")
    warmup: int = _warmup()

    def __post_init__(self) -> None:
        """Sort the milestones."""
        _settle(self)
        object.__setattr__(self, "milestones", tuple(sorted(self.milestones)))

    def factor(self, updates: int, epochs: float) -> float:
        """Return the factor after `updates` updates and `epochs` passes over the data."""
        passed = sum(epochs >= milestone for milestone in self.milestones)
        return _warm(self.warmup, updates) * self.gamma**passed


@dataclass(frozen=True, slots=True)
class Cosine:
    """The learning rate falls along half a cosine to `floor` times its value at `updates`, and stays there."""

    updates: int = parameter(minimum=1, help="updates after which the learning rate falls no further")
    floor: float = parameter(0.0, minimum=0, maximum=1, help="share of the learning rate that is left at the end")
    warmup: int = _warmup()

    source: ClassVar[str] = (
        'I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017, eq. (5), no restarts'
    )

    def __post_init__(self) -> None:
        """Check that the warm-up ends before the horizon."""
        _settle(self)
        if self.warmup >= self.updates:
            raise ConfigurationError(
                f"schedule.warmup must be below updates: {self.warmup} >= {self.updates}", field="schedule"
            )

    def factor(self, updates: int, epochs: float) -> float:
        """Return the factor after `updates` updates and `epochs` passes over the data."""
        share = min(1.0, max(0, updates - self.warmup) / (self.updates - self.warmup))
        falling = self.floor + (1 - self.floor) * (1 + math.cos(math.pi * share)) / 2
        return _warm(self.warmup, updates) * falling


AnySchedule = Constant | StepDecay | Cosine
SCHEDULES: Final[dict[str, type[AnySchedule]]] = {"constant": Constant, "step": StepDecay, "cosine": Cosine}


def schedule_from_plain(plain: dict[str, Any]) -> AnySchedule:
    """Return the schedule that a mapping such as ``{"name": "cosine", "updates": 2000}`` describes.

    Raises
    ------
    ConfigurationError
        If the name or a parameter is unknown or out of range.
    """
    options = dict(plain)
    name = options.pop("name", "constant")
    require_known(name, SCHEDULES, "There is no schedule", field="schedule")
    kind: Callable[..., AnySchedule] = SCHEDULES[name]
    return built(kind, options, f"schedule {name} has no parameter", field="schedule")


def schedule_to_plain(schedule: object) -> dict[str, Any] | None:
    """Return the mapping that `schedule_from_plain` reads, or ``None`` for a schedule of one's own."""
    for name, kind in SCHEDULES.items():
        if type(schedule) is kind:
            plain = asdict(schedule)
            return {"name": name, **{key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}}
    return None


def usable(schedule: Any) -> Any:
    """Return a schedule of any class, having asked it for the factor at the beginning.

    Raises
    ------
    ConfigurationError
        If it is none, raises, or answers no factor.
    """
    if isinstance(schedule, type) or not callable(getattr(schedule, "factor", None)):
        text = f"schedule must be an object that has a factor(updates, epochs), not {schedule!r}"
        remedy = f"; write {schedule.__name__}(...)" if isinstance(schedule, type) else "; see ps.Cosine"
        raise ConfigurationError(text + remedy, field="schedule")
    name = type(schedule).__name__
    try:
        factor = schedule.factor(0, 0.0)
    except Exception as error:  # whatever foreign code raises
        said = " ".join(f"{type(error).__name__}: {error}".split())
        text = f"the schedule {name} raises at the first update ({said}); its factor(0, 0.0) must return {FACTOR}"
        raise ConfigurationError(text, field="schedule") from error
    if not is_factor(factor):
        text = f"the schedule {name} answers {factor!r} for factor(0, 0.0); it must return {FACTOR}"
        raise ConfigurationError(text, field="schedule")
    return schedule


def _warm(warmup: int, updates: int) -> float:
    return min(1.0, (updates + 1) / warmup) if warmup else 1.0
