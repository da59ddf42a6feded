"""Run-time distributions: how long an iteration, a request or a round trip takes, in seconds.

Each is its parameters, and the same in words: ``str(d)`` is what `parse` reads, as in
``shifted-exponential:shift=0.02,mean=0.05``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from psplatform.core.limits import nearest
from psplatform.core.parameters import parameter, parameters_of, settle
from psplatform.errors import ConfigurationError
from psplatform.jobs.clauses import naming, parse_numbers

if TYPE_CHECKING:
    import numpy as np
    from numpy.random import Generator
    from numpy.typing import NDArray


MOST_SIGMA: Final = 10.0  # a log-normal time of mean exp(50) medians: far past use, far from overflow


class Distribution(ABC):
    """Seconds drawn at random; never negative."""

    __slots__ = ()

    name: ClassVar[str]
    """What it is called in words."""

    def __post_init__(self) -> None:
        settle(self, f"{self.name}: ")

    @abstractmethod
    def sample(self, rng: Generator) -> float:
        """Draw one value from `rng`."""

    @abstractmethod
    def samples(self, rng: Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` values from `rng` at once: ``float64[count]``; not the values that as many `sample` give."""

    @abstractmethod
    def mean(self) -> float:
        """Return the expected value."""

    def __str__(self) -> str:
        return f"{self.name}:" + ",".join(
            f"{one.spelled}={getattr(self, one.name)!r}" for one in parameters_of(type(self))
        )


def _seconds(help: str, alias: str = "") -> Any:
    return parameter(minimum=0, finite=True, help=f"{help}, in seconds", alias=alias)


@dataclass(frozen=True, slots=True)
class Constant(Distribution):
    """Always the same."""

    name: ClassVar[str] = "constant"

    seconds: float = _seconds("what it always takes")

    def sample(self, rng: Generator) -> float:
        """Return the value; nothing is drawn."""
        return self.seconds

    def samples(self, rng: Generator, count: int) -> NDArray[np.float64]:
        """Return the value `count` times; nothing is drawn."""
        import numpy as np  # noqa: PLC0415  the caller's generator has loaded it

        return np.full(count, self.seconds)

    def mean(self) -> float:
        """Return the value."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class Uniform(Distribution):
    """Evenly spread between `low` and `high`."""

    name: ClassVar[str] = "uniform"

    low: float = _seconds("the least")
    high: float = _seconds("the most")

    def __post_init__(self) -> None:
        Distribution.__post_init__(self)  # a slotted dataclass is not the class that `super` knows
        if self.low > self.high:
            raise ConfigurationError(f"{self.name}: low={self.low} is above high={self.high}; exchange them")

    def sample(self, rng: Generator) -> float:
        """Draw one value."""
        return float(rng.uniform(self.low, self.high))

    def samples(self, rng: Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` values."""
        return rng.uniform(self.low, self.high, count)

    def mean(self) -> float:
        """Return the middle."""
        return self.low + (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class ShiftedExponential(Distribution):
    """A fixed part and an exponential one: ``shift + (average - shift) * Exp(1)``."""

    name: ClassVar[str] = "shifted-exponential"

    shift: float = _seconds("the fixed part, the least value")
    average: float = _seconds("mean of the whole", alias="mean")

    def __post_init__(self) -> None:
        Distribution.__post_init__(self)
        if self.average < self.shift:
            message = f"{self.name}: mean={self.average} is below shift={self.shift}; the mean includes the shift"
            raise ConfigurationError(message)

    @classmethod
    def unit(cls, alpha: float) -> ShiftedExponential:
        """Return ``1 - alpha + alpha * Exp(1)``: mean 1, from constant (0) to exponential (1)."""
        if not 0 <= alpha <= 1:
            raise ConfigurationError(f"{cls.name}: alpha={alpha} must lie between 0 (constant) and 1 (exponential)")
        return cls(1 - alpha, 1.0)

    def sample(self, rng: Generator) -> float:
        """Draw one value."""
        return self.shift + (self.average - self.shift) * float(rng.exponential())

    def samples(self, rng: Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` values."""
        return self.shift + (self.average - self.shift) * rng.exponential(size=count)

    def mean(self) -> float:
        """Return the mean of the whole."""
        return self.average


@dataclass(frozen=True, slots=True)
class Pareto(Distribution):
    """Heavy-tailed from `scale` upwards: ``P(X > x) = (scale / x) ** shape``; the mean is finite for `shape` > 1."""

    name: ClassVar[str] = "pareto"

    scale: float = parameter(above=0, finite=True, help="the least, in seconds")
    shape: float = parameter(above=0, finite=True, help="the larger, the lighter the tail")

    def sample(self, rng: Generator) -> float:
        """Draw one value."""
        return self.scale * (1.0 + float(rng.pareto(self.shape)))

    def samples(self, rng: Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` values."""
        return self.scale * (1.0 + rng.pareto(self.shape, count))

    def mean(self) -> float:
        """Return the expected value, infinite where the tail is too heavy."""
        return self.scale * self.shape / (self.shape - 1) if self.shape > 1 else math.inf


@dataclass(frozen=True, slots=True)
class LogNormal(Distribution):
    """``median * exp(sigma * Normal(0, 1))``."""

    name: ClassVar[str] = "log-normal"

    median: float = parameter(above=0, finite=True, help="the median, in seconds")
    sigma: float = parameter(minimum=0, maximum=MOST_SIGMA, finite=True, help="spread of the logarithm")

    def sample(self, rng: Generator) -> float:
        """Draw one value."""
        return self.median * math.exp(self.sigma * float(rng.standard_normal()))

    def samples(self, rng: Generator, count: int) -> NDArray[np.float64]:
        """Draw `count` values."""
        return self.median * rng.lognormal(0.0, self.sigma, count)

    def mean(self) -> float:
        """Return the expected value."""
        return self.median * math.exp(self.sigma**2 / 2)


DISTRIBUTIONS: Final[dict[str, type[Distribution]]] = {
    kind.name: kind for kind in (Constant, Uniform, ShiftedExponential, Pareto, LogNormal)
}


def parse(text: str, *, field: str) -> Distribution:
    """Return the distribution that `text` describes, as in ``uniform:low=0.1,high=0.2``.

    Parameters
    ----------
    field
        The option the text comes from; errors name it.

    Raises
    ------
    ConfigurationError
        If the name or a key is unknown or missing, or a value is not a number the distribution can take.
    """
    name, _, rest = text.strip().partition(":")
    with naming(field):
        if name not in DISTRIBUTIONS:
            raise ConfigurationError(f'"{name}" is no distribution; {nearest(name, DISTRIBUTIONS)}')
        kind = DISTRIBUTIONS[name]
        if kind is ShiftedExponential and rest.startswith("alpha="):
            return ShiftedExponential.unit(**parse_numbers(rest, name, ("alpha",)))
        return kind(*parse_numbers(rest, name, [one.spelled for one in parameters_of(kind)]).values())
