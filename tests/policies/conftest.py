"""Whole runs of a policy in memory: workers with given speeds, on a clock that jumps, without arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun

Records = list[dict[str, Any]]
Race = Callable[..., MemoryRun]


@pytest.fixture
def race() -> Race:
    """Prepare a run of workers that take `intervals` seconds per gradient: ``race(policy, [1.0, 2.0]).run()``."""

    def prepare(policy: Policy, intervals: Sequence[float], *, updates: int = 100, **driven: Any) -> MemoryRun:
        plan = Plan(
            run="race",
            workers=len(intervals),
            shards=1,
            samples=100,
            batch_size=4,
            stop=Stop(updates=updates),
            schedule=Constant(),
        )
        driven.setdefault("compute_s", lambda slot, sequence: intervals[slot])
        run = MemoryRun(plan, policy, **driven)
        for number in range(len(intervals)):
            run.join(f"w{number}")
        return run

    return prepare


@pytest.fixture
def written_down_after_every_event(race: Race) -> Callable[..., Records]:
    """Return the records of a run whose policy is replaced, after each event, by one restored from its state."""

    def interrupted(make: Callable[[], Policy], intervals: Sequence[float], **given: Any) -> Records:
        run = race(make(), intervals, **given)

        def replace(_run: MemoryRun) -> None:
            fresh = make()
            fresh.restore(msgpack.unpackb(msgpack.packb(run.coordinator.state.policy.state())))
            run.coordinator.state.policy = fresh

        run.on_event = replace
        run.run()
        return run.records

    return interrupted
