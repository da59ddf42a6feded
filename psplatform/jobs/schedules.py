"""Learning-rate schedules of a job: factors on the learning rate as pure functions of updates and epochs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from psplatform.core.parameters import nearest
from psplatform.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Constant:
    """The learning rate stays as it is, after a linear warm-up over `warmup` updates (0: none)."""

    warmup: int = 0

    def __post_init__(self) -> None:
        """Check the warm-up."""
        _require(self.warmup >= 0, "warmup", "at least 0", self.warmup)

    def factor(self, updates: int, epochs: float) -> float:
        """Return the factor after `updates` updates and `epochs` passes over the data."""
        return _warm(self.warmup, updates)


@dataclass(frozen=True, slots=True)
class StepDecay:
    """The learning rate is multiplied by `gamma` at each of the `milestones`, counted in epochs."""

    milestones: tuple[float, ...] = (30.0, 60.0)
    gamma: float = 0.1
    warmup: int = 0

    def __post_init__(self) -> None:
        """Check and sort the milestones."""
        object.__setattr__(self, "milestones", tuple(sorted(float(one) for one in self.milestones)))
        _require(all(one > 0 for one in self.milestones), "milestones", "positive epochs", self.milestones)
        _require(0 < self.gamma <= 1, "gamma", "in (0, 1]", self.gamma)
        _require(self.warmup >= 0, "warmup", "at least 0", self.warmup)

    def factor(self, updates: int, epochs: float) -> float:
        """Return the factor after `updates` updates and `epochs` passes over the data."""
        passed = sum(epochs >= milestone for milestone in self.milestones)
        return _warm(self.warmup, updates) * self.gamma**passed


@dataclass(frozen=True, slots=True)
class Cosine:
    """The learning rate falls along half a cosine to `floor` times its value at `updates`, and stays there.

    Source: I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017, eq. (5), without
    restarts.
    """

    updates: int
    floor: float = 0.0
    warmup: int = 0

    def __post_init__(self) -> None:
        """Check the horizon."""
        _require(self.updates > 0, "updates", "positive", self.updates)
        _require(0 <= self.floor <= 1, "floor", "in [0, 1]", self.floor)
        _require(0 <= self.warmup < self.updates, "warmup", "at least 0 and below updates", self.warmup)

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
    if name not in SCHEDULES:
        known = ", ".join(sorted(SCHEDULES))
        raise ConfigurationError(
            f"unknown schedule {name!r}{nearest(str(name), SCHEDULES)} (known: {known})", field="schedule"
        )
    kind = SCHEDULES[name]
    known_options = {field.name for field in fields(kind)}
    for option in options:
        if option not in known_options:
            raise ConfigurationError(
                f"schedule {name!r} has no parameter {option!r}{nearest(option, known_options)}", field="schedule"
            )
    try:
        return kind(**options)
    except TypeError as error:
        raise ConfigurationError(f"schedule {name!r}: {error}", field="schedule") from error


def schedule_to_plain(schedule: object) -> dict[str, Any] | None:
    """Return the mapping that `schedule_from_plain` reads, or ``None`` for a schedule of one's own."""
    for name, kind in SCHEDULES.items():
        if type(schedule) is kind:
            plain = asdict(schedule)
            return {"name": name, **{key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()}}
    return None


def _warm(warmup: int, updates: int) -> float:
    return min(1.0, (updates + 1) / warmup) if warmup else 1.0


def _require(holds: bool, name: str, wanted: str, value: object) -> None:
    if not holds:
        raise ConfigurationError(f"schedule.{name} must be {wanted}, not {value!r}", field="schedule")
