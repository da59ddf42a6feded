"""An optimiser of your own: its class is sent to the servers, each of which steps its part of the parameters.

``python examples/own_optimizer.py [SCHEDULER]``; without a scheduler's address, a cluster on this machine is made.

The rule is Lion's (Chen et al., Symbolic discovery of optimization algorithms, 2023, algorithm 2).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from distributed import Client
from torch import Tensor

import psplatform as ps
from psplatform.core.parameters import parameter


@dataclass(frozen=True)
class Lion(ps.CustomOptimizer):
    """Step by the sign of an interpolated momentum."""

    lr: float = parameter(1e-3, minimum=0.0, help="learning rate")
    beta1: float = parameter(0.9, minimum=0.0, below=1.0, help="how much of the momentum is in a step")
    beta2: float = parameter(0.99, minimum=0.0, below=1.0, help="how much of the momentum is kept")
    weight_decay: float = parameter(0.0, minimum=0.0, help="by which, times lr, a step shrinks the parameters")

    def state_names(self) -> tuple[str, ...]:
        """Keep a momentum; it begins as zeros."""
        return ("momentum",)

    def step(
        self, parameters: Tensor, gradient: Tensor, state: Mapping[str, Tensor], out: Tensor, rate: float, number: int
    ) -> None:
        """Fill `out` with the parameters after the step; write nothing else but the state."""
        lr, momentum = self.lr * rate, state["momentum"]
        torch.lerp(gradient, momentum, self.beta1, out=out).sign_()
        torch.add(parameters * (1 - lr * self.weight_decay), out, alpha=-lr, out=out)
        momentum.lerp_(gradient, 1 - self.beta2)


def main() -> None:
    """Check the class, then train with it."""
    ps.check_optimizer(Lion(weight_decay=0.1))
    client = Client(sys.argv[1]) if sys.argv[1:] else None
    job = ps.Job(
        workload="digits",
        optimizer=Lion(lr=2e-3),
        policy="bsp",
        workers=2,
        stop=ps.Stop(target_accuracy=0.95, updates=1000),
    )
    with ps.train(job, client) as run:
        summary = run.wait()
    print(f"{summary['optimizer']['name']}: accuracy {summary['accuracy']:.3f} after {summary['updates']} updates")


if __name__ == "__main__":  # the processes of an embedded cluster import this file
    main()
