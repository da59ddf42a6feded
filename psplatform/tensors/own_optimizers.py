"""The base of optimisers of one's own: a class in the user's program, which is sent to the servers by value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from psplatform.errors import ConfigurationError
from psplatform.jobs.optimizers import Optimizer


@dataclass(frozen=True)
class CustomOptimizer(Optimizer):
    """Base of an optimiser of one's own.

    A subclass is a frozen dataclass. Those of its fields that are declared with `psplatform.core.parameters.parameter`
    are its hyper-parameters: checked, part of the log, and different in a `ps.Group` if that says so. Two methods say
    what it does; `ps.check_optimizer` tells whether they keep to what is asked of them.
    """

    name: ClassVar[str] = "custom"

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the optimiser after its class, unless it has a name."""
        super().__init_subclass__(**options)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    def __post_init__(self) -> None:
        """Check the hyper-parameters."""
        kind = type(self)
        if "__dataclass_params__" not in kind.__dict__:
            message = f"the optimizer {kind.__name__} is no dataclass; write @dataclass(frozen=True) above the class"
            raise ConfigurationError(message, field="optimizer")
        if kind.step is CustomOptimizer.step:
            raise ConfigurationError(f"the optimizer {kind.__name__} has no step; define it", field="optimizer")
        super().__post_init__()

    def state_names(self) -> tuple[str, ...]:
        """Return a name for each vector of state; each has the shape of the parameters and begins as zeros."""
        return ()

    def step(
        self, parameters: Tensor, gradient: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, number: int
    ) -> None:
        """Fill `out` with the parameters after a step, and the vectors of `state` with the state after it.

        It is called with any piece of the flat vector of parameters, and with each as often as with the others.  So
        every element of the result must follow from the same elements of what is given: no norms, no shapes of layers,
        no random numbers, nothing that is remembered elsewhere than in `state`.

        Parameters
        ----------
        parameters, gradient
            `float[n]`; only read: workers may be reading them.
        state
            `float[n]` by the names that `state_names` returned.
        out
            `float[n]`, apart from all others; may be used as scratch before.
        rate
            Factor of the policy and of the schedule: multiply the learning rate with it.
        number
            Number of this step, from 1.
        """
