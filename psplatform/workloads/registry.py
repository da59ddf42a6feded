"""The workloads by name, with their options and good settings; loads neither torch nor data."""

from __future__ import annotations

import difflib
import importlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from psplatform.errors import ConfigurationError

if TYPE_CHECKING:
    from psplatform.tasks.supervised import SupervisedTask

_LARGEST: Final = 1e9  # more samples or dimensions than a machine holds

OptionValue = int | float | str


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a workload; without a `default` it must be given."""

    name: str
    kind: type[int | float | str]
    help: str
    default: OptionValue | None = None
    minimum: float = -math.inf

    def parse(self, value: object) -> OptionValue:
        """Return `value`, which may be text, as the option's kind.

        Raises
        ------
        ConfigurationError
            If it is of another kind or out of range.
        """
        try:
            parsed = self._convert(value)
        except (TypeError, ValueError, OverflowError):
            raise self._refused(value) from None
        if self.kind is not str and not self._in_range(float(parsed)):
            raise self._refused(value)
        return parsed

    def _convert(self, value: object) -> OptionValue:
        if self.kind is str and isinstance(value, str | os.PathLike):
            return str(value)
        if self.kind is not str and isinstance(value, int | float | str) and not isinstance(value, bool):
            number = self.kind(value)
            if isinstance(value, str) or number == value:  # int(20.5) would be 20
                return number
        raise ValueError(value)

    def _in_range(self, number: float) -> bool:
        return math.isfinite(number) and self.minimum <= number <= _LARGEST

    def _refused(self, value: object) -> ConfigurationError:
        limit = f" of at least {self.minimum:g}" if math.isfinite(self.minimum) else ""
        message = f"The option {self.name} is {value!r}; give it a value of type {self.kind.__name__}{limit}."
        return ConfigurationError(message, field=self.name)


@dataclass(frozen=True, slots=True)
class Workload:
    """A task that can be named on the command line.

    Attributes
    ----------
    name, help
        What users type and read.
    module
        The module whose function ``make`` takes the options and returns the task.
    options
        The options it takes.
    defaults
        Fields of a job that suit it: ``lr``, ``momentum``, ``batch_size``, ``epochs`` and ``target_accuracy``, which
        these settings reach.
    settings
        Other fields of a job that suit it.
    """

    name: str
    help: str
    module: str
    options: tuple[Option, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def make(self, options: Mapping[str, Any] | None = None) -> SupervisedTask:
        """Return the task, picklable, with `options` that may be text and need not be complete.

        Raises
        ------
        ConfigurationError
            Naming the option that is unknown, missing or malformed.
        """
        given = dict(options or {})
        known = [option.name for option in self.options]
        for name in given:
            if name not in known:
                raise _unknown(f"option of {self.name}", name, known, blamed=name)
        arguments = {option.name: self._value(option, given) for option in self.options}
        task: SupervisedTask = importlib.import_module(self.module).make(**arguments)
        return task

    def _value(self, option: Option, given: Mapping[str, Any]) -> OptionValue:
        if option.name in given:
            return option.parse(given[option.name])
        if option.default is None:
            raise ConfigurationError(
                f"The workload {self.name} needs the option {option.name} ({option.help}); give it a value.",
                field=option.name,
            )
        return option.default


_FOLDER = Option("folder", str, "local folder that holds the data set's files")

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            name="digits",
            help="1797 handwritten digits of 8x8 pixels from scikit-learn, small convolutional network",
            module="psplatform.workloads.digits",
            options=(Option("network", str, "convolutional, or perceptron with 32 hidden units", "convolutional"),),
            defaults={"lr": 0.02, "momentum": 0.8, "batch_size": 32, "epochs": 15, "target_accuracy": 0.97},
        ),
        Workload(
            name="mlp",
            help="mixture of Gaussians, perceptron with 32 hidden units",
            module="psplatform.workloads.mlp",
            options=(
                Option("samples", int, "samples drawn, one in five of them held out", 25000, minimum=10),
                Option("dimension", int, "dimension of a sample", 64, minimum=1),
                Option("classes", int, "components of the mixture", 10, minimum=2),
                Option("spread", float, "standard deviation around a component's centre", 1.5, minimum=0),
                Option("offset", float, "mean of the components' centres in each dimension", 1.0),
            ),
            # The largest rate that is stable where each update averages the gradients of 16 workers, and the sampling
            # under which all gradients of a version are independent: `psplatform bench dbw` compares policies on it.
            defaults={"lr": 0.3, "momentum": 0.0, "batch_size": 64, "epochs": 5, "target_accuracy": 0.995},
            settings={"sampling": "replacement", "evaluate_on": "training"},
        ),
        Workload(
            name="mnist",
            help="60000 handwritten digits of 28x28 pixels from IDX files, convolutional network",
            module="psplatform.workloads.mnist",
            options=(_FOLDER,),
            defaults={"lr": 0.02, "momentum": 0.9, "batch_size": 32, "epochs": 5, "target_accuracy": 0.98},
        ),
        Workload(
            name="cifar10",
            help="60000 colour images of 32x32 pixels from binary files, convolutional network",
            module="psplatform.workloads.cifar10",
            options=(_FOLDER,),
            defaults={"lr": 0.01, "momentum": 0.9, "batch_size": 32, "epochs": 15, "target_accuracy": 0.65},
        ),
    )
}


def find_workload(name: str) -> Workload:
    """Return the workload of that name.

    Raises
    ------
    ConfigurationError
        If there is none; it names the most similar one.
    """
    if name not in WORKLOADS:
        raise _unknown("workload", name, WORKLOADS, blamed="workload")
    return WORKLOADS[name]


def _unknown(what: str, name: str, known: Iterable[str], *, blamed: str) -> ConfigurationError:
    names = sorted(known)
    similar = difflib.get_close_matches(name, names, n=1)
    remedy = f"did you mean {similar[0]}?" if similar else f"choose from: {', '.join(names) or 'none'}."
    return ConfigurationError(f"There is no {what} called {name!r}; {remedy}", field=blamed)
