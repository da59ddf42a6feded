"""``bench exchange``: ours and others' way to exchange gradients for parameters, in rounds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from psplatform.bench import exchange
from psplatform.bench.exchange import Setting, measure
from psplatform.bench.measuring.rounds import Measured, in_rounds
from psplatform.errors import ClusterError, ConfigurationError
from psplatform.jobs.replication import NoReplication


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure for a moment."""
    baselines = ("gloo", "rpc", "rpc-tcp", "actor", "ray")
    return measure(parameters=(1000,), workers=(2,), baselines=baselines, rounds=1, seconds=0.5, profile=True)


def test_all_systems_are_measured_and_those_that_are_not_installed_are_named(found: dict[str, Any]) -> None:
    systems = [row["system"] for row in found["results"]]
    assert systems[:6] == ["psplatform", "psplatform-unreplicated", "gloo", "rpc", "rpc-tcp", "actor"]
    assert ("ray" in systems) == ("ray" not in found["left_out"])
    for row in found["results"]:
        assert (row["parameters"], row["workers"], row["shards"]) == (1000, 2, 1)
        assert row["ms"] > 0
        assert row["cpu_ms"] > 0
        assert row["low"] <= row["ratio_to_gloo"] <= row["high"]


def test_which_processes_compute_is_told_by_role(found: dict[str, Any]) -> None:
    for row in found["results"]:
        roles = row["cpu_ms_by_role"]
        if row["system"].startswith("psplatform"):
            assert sum(roles.values()) == pytest.approx(row["cpu_ms"])
            assert any("server" in one.split("+") for one in roles)
            assert {"worker", "cluster"} <= roles.keys()
        else:
            assert roles == {}


def test_each_system_is_measured_once_a_round_and_the_order_alternates() -> None:
    measured: list[str] = []

    def take(name: str, ms: float) -> Measured:
        measured.append(name)
        return Measured(ms * len(measured), 1.0)

    rounds = in_rounds({"a": partial(take, "a", 1.0), "b": partial(take, "b", 2.0)}, 3)
    assert measured == ["a", "b", "b", "a", "a", "b"]
    row = exchange._row("a", 10, 2, 1, rounds["a"], rounds["b"], profile=False)
    assert row["ms"] == 4.0
    assert (row["low"], row["ratio_to_gloo"], row["high"]) == (0.25, 5 / 12, 2 / 3)


def test_what_cannot_be_compared_with_is_named() -> None:
    with pytest.raises(
        ConfigurationError, match="horovod cannot be compared with; choose of gloo, rpc, rpc-tcp, actor, ray"
    ):
        measure(baselines=("gloo", "horovod"))


def test_a_rival_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(exchange.RIVALS, "nobody", "torch")
    monkeypatch.setattr(exchange, "_ours", lambda *_: Measured(1.0, 1.0))
    with pytest.raises(ClusterError, match=r"nobody failed \(ModuleNotFoundError: .*leave it out of --baselines"):
        measure(parameters=(10,), workers=(1,), baselines=("nobody",), rounds=1, setting=Setting())


def test_a_setting_is_a_job_with_a_name() -> None:
    setting = Setting(policy="asp", shards=2, transport="comms", replicated=False)
    assert setting.system == "psplatform-asp-comms-unreplicated"
    job = setting.job(10, 3, "memory:")
    assert (job.policy, job.shards, job.transport, job.workers) == ("asp", 2, "comms", 3)
    assert isinstance(job.replication, NoReplication)
