"""What versions are measured by beside the loss, as a job names it; nothing here computes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from psplatform.core.limits import nearest
from psplatform.errors import ConfigurationError

Better = Literal["higher", "lower"]

BUNDLED: Final[Mapping[str, Better]] = {"accuracy": "higher", "f1": "higher", "perplexity": "lower"}
"""The metrics that are known by name, and which values of them are better."""

_WITHOUT_OUTPUTS: Final = ("perplexity",)
"""Those that are made of the loss alone."""

_NAME: Final = re.compile(r"[^\W\d][\w .@/-]{0,63}")
_METHODS: Final = ("update", "compute", "reset")


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, and which values of it are better.

    Attributes
    ----------
    measure
        A function of outputs and targets, called with those of all held-out samples at once, on the CPU, that returns
        a number; an object with ``update(outputs, targets)``, ``compute()`` and ``reset()``, as torchmetrics has them;
        the name of a bundled one; or None where a task's own ``evaluate`` returns it among its ``metrics``.
    better
        Whether ``"higher"`` or ``"lower"`` values are better.
    """

    measure: Any = None
    better: Better = "higher"

    def __post_init__(self) -> None:
        if self.better not in ("higher", "lower"):
            raise _refused(f"better must be 'higher' or 'lower', not {self.better!r}")
        if isinstance(self.measure, str) and self.measure not in BUNDLED:
            raise _refused(f'there is no metric "{self.measure}"; {nearest(self.measure, BUNDLED)}')
        if isinstance(self.measure, type):
            name = self.measure.__name__
            raise _refused(f"a metric is the class {name}; hand in one of its objects: {name}()")
        usable = self.measure is None or isinstance(self.measure, str) or callable(self.measure)
        if not (usable or accumulates(self.measure)):
            remedy = "give a function of outputs and targets, a torchmetrics object, or a bundled name"
            raise _refused(f"a metric cannot be {self.measure!r}; {remedy}: {', '.join(BUNDLED)}")

    @property
    def is_always_measured(self) -> bool:
        """Whether evaluations measure it without being asked, or the task itself does."""
        return self.measure is None or (isinstance(self.measure, str) and self.measure == "accuracy")

    @property
    def needs_outputs(self) -> bool:
        """Whether it is made of outputs and targets."""
        if isinstance(self.measure, str):
            return self.measure not in _WITHOUT_OUTPUTS
        return self.measure is not None

    def to_plain(self) -> dict[str, Any] | None:
        """Return the fields, or None where the measure is code."""
        plain = self.measure is None or isinstance(self.measure, str)
        return {"measure": self.measure, "better": self.better} if plain else None


def accumulates(measure: Any) -> bool:
    """Return whether it is an object that takes batches and computes a value of them, as those of torchmetrics."""
    return all(callable(getattr(measure, name, None)) for name in _METHODS)


def metrics_of(given: Any) -> dict[str, Metric]:
    """Return the metrics by name that a name, a list, or a mapping of names to measures describes.

    Raises
    ------
    ConfigurationError
        If one is unknown, has no usable name, or is no metric.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        given = [name.strip() for name in given.split(",") if name.strip()]
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif isinstance(given, list | tuple):
        pairs = [(_own_name(one), one) for one in given]
    else:
        pairs = [(_own_name(given), given)]
    found: dict[str, Metric] = {}
    for name, measure in pairs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _refused(f"{name!r} cannot be the name of a metric; begin with a letter, and use no = or ,")
        if name in found:
            raise _refused(f'two metrics are called "{name}"; give them as a mapping of names to metrics')
        found[name] = _metric(name, measure)
    return found


def _metric(name: str, given: Any) -> Metric:
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in ("measure", "better")]
        if unknown:
            raise _refused(f'the metric "{name}" has no "{unknown[0]}"; it has measure and better')
        given = Metric(**given)
    metric = given if isinstance(given, Metric) else Metric(given, _better(given))
    bundled = metric.measure if isinstance(metric.measure, str) else None
    if name == "loss" or (name == "accuracy" and bundled != "accuracy"):
        raise _refused(f'a metric of your own cannot be called "{name}", which is measured anyway; choose another name')
    return metric


def _better(measure: Any) -> Better:
    if isinstance(measure, str):
        return BUNDLED.get(measure, "higher")
    return "lower" if getattr(measure, "higher_is_better", None) is False else "higher"


def _own_name(measure: Any) -> Any:
    if isinstance(measure, str):
        return measure
    if isinstance(measure, Metric):
        return _own_name(measure.measure)
    return getattr(measure, "__name__", type(measure).__name__).strip("<>")


def _refused(text: str) -> ConfigurationError:
    return ConfigurationError(f"metrics: {text}", field="metrics")
