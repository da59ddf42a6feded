"""The thread that computes gradients: on parameters that hold still, or it says that they did not."""

from __future__ import annotations

from collections.abc import Callable
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import ComputeAborted, Computed, ComputeFailed, Overwritten
from psplatform.runtime.actors.computing import Computing
from psplatform.runtime.dataplane.devices import Updates
from psplatform.runtime.dataplane.parameters import Parameters
from psplatform.tasks.cancellation import Cancelled
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate

LIMIT_S = 60.0


class Watched(Parameters):
    """Parameters that may be written over, and that notice who looks."""

    changed = False
    looks = 0

    def has_changed(self) -> bool:
        return self.changed

    def look_after(self) -> None:
        self.looks += 1


class Workspace:
    """Computes by calling a function, and notes on what."""

    def __init__(self, compute: Callable[[], None]) -> None:
        self.computes = compute
        self.turned_to: list[Any] = []

    def bind(self, *bound: Any) -> None: ...

    def compute_from(self, values: Any, *, alone: bool) -> None:
        self.turned_to.append((values, alone))

    def compute(self, batch: Any, cancellation: Any, micro_batches: int) -> Any:
        self.computes()
        return SimpleNamespace(samples=4, loss=0.5)


class Bench:
    """A computing thread."""

    def __init__(self, layout: Layout) -> None:
        self.parameters = Watched(layout)
        self.workspace = Workspace(lambda: None)
        plan = SimpleNamespace(samples=8, batch_size=4)
        program: Any = SimpleNamespace(seed=0, plan=plan, micro_batches=1, stragglers=None)
        self.outcomes: Queue[Any] = Queue()
        updates = {key: vector.fill_(1) for key, vector in allocate(layout).items()}
        parts: Any = program, self.workspace, layout, self.parameters, Updates(updates), self.outcomes.put
        self.computing = Computing(*parts)

    def compute(self) -> Any:
        self.computing.start(Compute(0, 1, None))
        return self.outcomes.get(timeout=LIMIT_S)


@pytest.fixture
def bench(layout: Layout) -> Any:
    one = Bench(layout)
    yield one
    one.computing.close()


def test_a_gradient_on_parameters_that_held_still_is_one(bench: Bench) -> None:
    assert isinstance(bench.compute(), Computed)
    assert bench.parameters.looks == 1
    assert bench.workspace.turned_to == []


def test_one_on_parameters_that_were_written_over_is_none(bench: Bench) -> None:
    bench.parameters.changed = True
    assert bench.compute() == Overwritten(1)


def raise_from(error: BaseException) -> Callable[[], None]:
    def compute() -> None:
        raise error

    return compute


def test_of_what_was_raised_on_such_parameters_the_user_is_not_blamed(bench: Bench) -> None:
    bench.workspace.computes = raise_from(ValueError("no probability"))
    failed = bench.compute()
    assert isinstance(failed, ComputeFailed)
    assert "no probability" in failed.text
    bench.parameters.changed = True
    assert bench.compute() == Overwritten(1)


def test_whether_the_model_wrote_to_its_parameters_is_looked_at_when_it_was_interrupted_as_well(bench: Bench) -> None:
    bench.workspace.computes = raise_from(Cancelled())
    assert bench.compute() == ComputeAborted(1)
    assert bench.parameters.looks == 1


def test_the_workspace_turns_to_where_the_parameters_are(bench: Bench, layout: Layout) -> None:
    other = allocate(layout)
    bench.parameters.vectors = other
    for _ in range(2):
        bench.compute()
    ((values, alone),) = bench.workspace.turned_to
    assert values is other
    assert alone, "they are its own"
