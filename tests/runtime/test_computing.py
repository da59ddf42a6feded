"""The thread that computes gradients: on parameters that hold still, or it says that they did not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from queue import Queue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import ComputeAborted, Computed, ComputeFailed, Overwritten
from psplatform.jobs.compression import Compression
from psplatform.runtime.actors.worker.computing import Computing
from psplatform.runtime.dataplane.pulls.devices import Updates
from psplatform.runtime.dataplane.pulls.parameters import Parameters
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

    def __init__(self, layout: Layout, compression: Compression | None = None) -> None:
        self.parameters = Watched(layout)
        self.workspace = Workspace(lambda: None)
        plan = SimpleNamespace(samples=8, batch_size=4)
        program: Any = SimpleNamespace(
            seed=0, plan=plan, micro_batches=1, stragglers=None, compression=compression or Compression()
        )
        self.outcomes: Queue[Any] = Queue()
        self.updates = {key: vector.fill_(1) for key, vector in allocate(layout).items()}
        parts: Any = program, self.workspace, layout, self.parameters, Updates(self.updates), self.outcomes.put
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


def begun(bench: Bench) -> Event:
    """Begin a gradient that ends when the event that is returned is set."""
    begins, goes_on = Event(), Event()

    def compute() -> None:
        begins.set()
        goes_on.wait(LIMIT_S)

    bench.workspace.computes = compute
    bench.computing.start(Compute(0, 1, None))
    assert begins.wait(LIMIT_S)
    return goes_on


def test_it_rests_when_the_gradient_at_hand_is_over(bench: Bench) -> None:
    async def rest() -> None:
        goes_on = begun(bench)
        rests = asyncio.ensure_future(bench.computing.come_to_rest(LIMIT_S))
        await asyncio.sleep(0.05)
        assert not rests.done()
        goes_on.set()
        await rests

    asyncio.run(rest())
    assert bench.outcomes.get_nowait() == ComputeAborted(1)


def test_waiting_for_it_to_rest_ends_when_it_is_closed(bench: Bench) -> None:
    async def rest() -> None:
        await bench.computing.come_to_rest(LIMIT_S)  # nothing was begun
        goes_on = begun(bench)
        rests = asyncio.ensure_future(bench.computing.come_to_rest(10 * LIMIT_S))
        await asyncio.sleep(0)
        bench.computing.close()
        await rests
        await bench.computing.come_to_rest(10 * LIMIT_S)
        goes_on.set()

    asyncio.run(rest())


def test_of_what_was_raised_on_such_parameters_the_user_is_not_blamed(bench: Bench) -> None:
    bench.workspace.computes = raise_from(ValueError("no probability"))
    failed = bench.compute()
    assert isinstance(failed, ComputeFailed)
    assert "no probability" in failed.text
    bench.parameters.changed = True
    assert bench.compute() == Overwritten(1)


def test_code_that_ends_the_program_fails_as_any_other(bench: Bench) -> None:
    bench.workspace.computes = raise_from(SystemExit("no data"))
    failed = bench.compute()
    assert isinstance(failed, ComputeFailed)
    assert (failed.kind, failed.text) == ("SystemExit", "no data")


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


def test_what_is_kept_back_of_a_gradient_is_in_the_next_and_one_that_is_not_finite_changes_nothing_of_it(
    layout: Layout,
) -> None:
    """A gradient that is not finite is given up before anything is kept back of it, or added to it."""
    one = Bench(layout, Compression("topk", 0.01))
    parameters = [vector for key, vector in one.updates.items() if key.startswith("parameter")]

    def computed(value: float, largest: float) -> list[float]:
        def compute() -> None:
            for vector in parameters:
                vector.fill_(value)
            parameters[0][0] = largest

        one.workspace.computes = compute
        outcome = one.compute()
        assert isinstance(outcome, Computed)
        return [outcome.squared_norm, float(parameters[0][0]), float(parameters[0][1])]

    try:
        assert computed(1.0, 5.0) == [25.0, 5.0, 0.0]
        squared, first, second = computed(1.0, math.inf)
        assert (squared, first, second) == (math.inf, math.inf, 1.0)
        assert computed(1.0, 7.0) == [49.0, 7.0, 0.0]
        assert computed(0.0, 9.0)[1:] == [9.0, 0.0]
        every = computed(0.0, 2.0)
        assert every[2] == 2.0, "the others have come to as much: one of each gradient that was finite"
    finally:
        one.computing.close()
