"""``bench memory``: what a run holds, in sizes of its model."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from psplatform.bench.measuring.host import held_bytes
from psplatform.bench.memory import Setting, measure
from psplatform.bench.tasks.layers import job_of_layers, parameters_of

MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure a model of a few megabytes for a moment."""
    return measure(setting=Setting(parameters=4_000_000), iterations=5)


def test_what_is_held_is_told_by_role_in_sizes_of_the_model(found: dict[str, Any]) -> None:
    """Of two copies, two gradients and a momentum at least, each counts where it is mapped: less would be a mistake.

    Three processes map the copies of an unreplicated server, two each of the gradients.
    """
    for system, roles in {"psplatform": {"replica"}, "psplatform-unreplicated": set[str]()}.items():
        rows = [row for row in found["results"] if row["system"] == system]
        names = {name for row in rows for name in row["role"].split("+")}
        assert {"worker", "server", "coordinator", "cluster"} | roles <= names
        held = {row["role"]: row["models"] for row in rows}
        assert next(models for role, models in held.items() if "server" in role.split("+")) >= 2.5
        assert held["worker"] >= 2
        assert next(row["processes"] for row in rows if row["role"] == "worker") == 2
        assert found["models"][system] == pytest.approx(sum(held.values()))
    assert found["models"]["psplatform"] > found["models"]["psplatform-unreplicated"] + 1.5


def test_what_has_grown_is_told(found: dict[str, Any]) -> None:
    for system, grown in found["grown"].items():
        rows = [row["grown"] for row in found["results"] if row["system"] == system]
        assert grown == pytest.approx(sum(rows))


@pytest.mark.parametrize(("wanted", "parameters"), [(25_000_000, 25_000_000), (100, 64), (1, 16)])
def test_the_model_has_as_many_parameters_as_is_said(wanted: int, parameters: int) -> None:
    assert parameters_of(wanted) == parameters
    if wanted < 1000:
        job = job_of_layers(wanted, workers=1)
        assert sum(one.numel() for one in job.model.parameters()) == parameters


def test_what_a_process_shares_is_counted_in_parts_and_what_is_gone_not_at_all() -> None:
    program = "import sys; held = bytearray(b'1' * (64 << 20)); print(len(held), flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as one:
        assert one.stdout is not None
        one.stdout.readline()
        held = held_bytes(one.pid)
        assert 64 * MEGABYTE <= held < 200 * MEGABYTE
        one.communicate()
    assert held_bytes(one.pid) == 0
