"""Under a policy of exact versions a run ends where a serial loop does, bit for bit, as long as nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from psplatform.simulation.faults.execution import Execution
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import Copying, Trial
from psplatform.simulation.threads import one_thread


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with one_thread():
        yield


def trial(*faults: Fault, **fields: Any) -> Trial:
    usual: dict[str, Any] = {
        "workers": 3,
        "shards": 2,
        "updates": 8,
        "copying": Copying(),
        "spares": 4,
        "standby": True,
    }
    return Trial(3, faults=faults, **{**usual, **fields})


@pytest.mark.parametrize(
    ("faults", "fields"),
    [
        ((), {}),
        ((), {"clip": 0.5, "optimizer": {"name": "adam", "lr": 0.01}, "epochs": True}),
        ((), {"policy": "backup", "parameters": {"k": 2}}),
        ((Fault("kill", "worker 1", at=3.5),), {"epochs": True, "late": (5.0,)}),
        ((Fault("kill", "server 0", at=4.0),), {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}),
        ((Fault("kill", "coordinator", at=4.0),), {"shared": True}),
        ((Fault("retire", "server 1", at=4.0, seconds=3.0),), {"copying": Copying(bound=4.0)}),
    ],
    ids=["nothing", "clipped adam", "backup", "a worker", "a server", "a unit", "in good order"],
)
def test_a_run_that_has_lost_nothing_equals_the_serial_loop(faults: tuple[Fault, ...], fields: dict[str, Any]) -> None:
    verdict = Execution(trial(*faults, **fields)).to_its_end()
    assert not verdict.invariant, verdict.found
    assert verdict.counts["lost positions"] == 0
    assert verdict.counts["serial loops"] == 1
    assert verdict.counts["faults"] == len(faults)


def test_a_run_under_a_policy_of_newest_versions_is_not_compared() -> None:
    verdict = Execution(trial(policy="asp")).to_its_end()
    assert verdict.counts["serial loops"] == 0


def test_a_difference_of_one_bit_is_noticed() -> None:
    execution = Execution(trial(clip=0.5))
    step, done = execution.reference.stage, []

    def stage(copy: str, factor: float, rate: float) -> float:
        done.append(copy)
        return step(copy, factor * (1 + 1e-6) if len(done) == 5 else factor, rate)

    execution.reference.stage = stage  # type: ignore[method-assign]
    verdict = execution.to_its_end()
    assert verdict.invariant == "S8"
    assert "differ from what a serial loop over the same 8 rounds reaches" in verdict.found
