"""The workloads by name, with their options and good settings; loads neither torch nor data."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from psplatform.core.parameters import Parameter, accept_all, parameter, parameters_of, require_known

if TYPE_CHECKING:
    from psplatform.tasks.supervised import SupervisedTask

_MOST: Final = 10**9  # more samples or dimensions than a machine holds


@dataclass(frozen=True, slots=True)
class DigitsOptions:
    """Options of ``digits``."""

    network: Literal["convolutional", "perceptron"] = parameter(
        "convolutional", help="convolutional, or perceptron with 32 hidden units"
    )


@dataclass(frozen=True, slots=True)
class MixtureOptions:
    """Options of ``mlp``."""

    samples: int = parameter(25000, minimum=10, maximum=_MOST, help="samples drawn, one in five of them held out")
    dimension: int = parameter(64, minimum=1, maximum=_MOST, help="dimension of a sample")
    classes: int = parameter(10, minimum=2, maximum=_MOST, help="components of the mixture")
    spread: float = parameter(1.5, minimum=0, maximum=_MOST, help="standard deviation around a component's centre")
    offset: float = parameter(1.0, finite=True, maximum=_MOST, help="mean of the components' centres in each dimension")


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """Options of data sets that are read from files."""

    folder: str = parameter(help="local folder that holds the data set's files", path=True)


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
        The dataclass that declares the options it takes.
    defaults
        Fields of a job that suit it: ``lr``, ``momentum``, ``batch_size``, ``epochs`` and ``target_accuracy``, which
        these settings reach.
    settings
        Other fields of a job that suit it.
    """

    name: str
    help: str
    module: str
    options: type
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
        for one in self.parameters:
            if one.kind is int and isinstance(given.get(one.name), float) and given[one.name].is_integer():
                given[one.name] = int(given[one.name])  # what programs have computed
        accepted = accept_all(self.options, given, what=f"workload {self.name}")
        arguments = {one.name: accepted.get(one.name, one.default) for one in self.parameters}
        task: SupervisedTask = importlib.import_module(self.module).make(**arguments)
        return task

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The options, described."""
        return parameters_of(self.options)


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            name="digits",
            help="1797 handwritten digits of 8x8 pixels from scikit-learn, small convolutional network",
            module="psplatform.workloads.digits",
            options=DigitsOptions,
            defaults={"lr": 0.02, "momentum": 0.8, "batch_size": 32, "epochs": 15, "target_accuracy": 0.97},
        ),
        Workload(
            name="mlp",
            help="mixture of Gaussians, perceptron with 32 hidden units",
            module="psplatform.workloads.mlp",
            options=MixtureOptions,
            # The largest rate that is stable where each update averages the gradients of 16 workers, and the sampling
            # under which all gradients of a version are independent: `psplatform bench dbw` compares policies on it.
            defaults={"lr": 0.3, "momentum": 0.0, "batch_size": 64, "epochs": 5, "target_accuracy": 0.995},
            settings={"sampling": "replacement", "evaluate_on": "training"},
        ),
        Workload(
            name="mnist",
            help="60000 handwritten digits of 28x28 pixels from IDX files, convolutional network",
            module="psplatform.workloads.mnist",
            options=FolderOptions,
            defaults={"lr": 0.02, "momentum": 0.9, "batch_size": 32, "epochs": 5, "target_accuracy": 0.98},
        ),
        Workload(
            name="cifar10",
            help="60000 colour images of 32x32 pixels from binary files, convolutional network",
            module="psplatform.workloads.cifar10",
            options=FolderOptions,
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
    require_known(name, WORKLOADS, "There is no workload", field="workload")
    return WORKLOADS[name]
