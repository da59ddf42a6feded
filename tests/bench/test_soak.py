"""``bench soak``: a run is hurt a few times, and what is told of that is whole."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from psplatform.bench import soak

FAULTS: Final = 4

pytestmark = pytest.mark.skipif(
    not os.environ.get("PSPLATFORM_FULL_MATRIX"), reason="takes minutes; PSPLATFORM_FULL_MATRIX=1 runs it"
)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure with one process in each group: no two of a run's gradient workers are in one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(soak, "_STOPPED_S", (1.0, 2.0))
        patch.setattr(soak, "_SCHEDULER_S", (1.0, 2.0))
        return soak.measure(faults=FAULTS, seed=1, processes=1, gradient_s=0.02)


def test_a_run_survives_every_fault_within_its_bound(found: dict[str, Any]) -> None:
    assert (found["faults"], found["survived"]) == (FAULTS, FAULTS)
    assert found["violations"] == []
    assert len(found["runs"]) == 1
    assert found["runs"][0]["outcome"] == "stopped"


def test_every_fault_has_a_row_with_its_times(found: dict[str, Any]) -> None:
    assert len(found["rows"]) == FAULTS
    for row in found["rows"]:
        assert row["next_commit_s"] > 0
        assert row["pause_s"] >= row["next_commit_s"] or row["next_commit_s"] < 1
        assert row["whole_after"]
        assert row["safe_again_s"] >= 0


def test_what_is_held_is_counted_before_the_first_fault_and_after_each(found: dict[str, Any]) -> None:
    told = found["growth"]
    for role in ("coordinator", "server", "worker", "scheduler"):
        assert told[f"{role} pss_mib"]["max"] > 10
    assert told["processes files"]["first"] > 3 * 4
    assert told["scheduler tasks"]["first"] > 0
    assert told["segments"]["first"] > 0


def test_shares_of_time_are_shares(found: dict[str, Any]) -> None:
    assert all(0 <= share <= 1 for share in found["unprotected"].values())
