"""What the log tells of planned transfers, beside what the network of a simulated run has carried."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from psplatform.jobs.job import Job
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.network import Network
from psplatform.simulation.simulate import simulate

SmallJob = Callable[..., Job]


def test_the_bytes_of_every_interface_are_those_that_the_network_has_carried(
    small_job: SmallJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sums and of parameters that were handed on; what stays on a host, of two workers each, is not among them."""
    carried: dict[str, dict[str, float]] = {}
    transfer = Network.transfer

    def observed(self: Network, source: str, to: str, size_bytes: float, now: float, **late: float) -> float:
        for host, way in ((source, "bytes_out"), (to, "bytes_in")):
            if source != to:
                carried.setdefault(host, {"bytes_in": 0, "bytes_out": 0})[way] += size_bytes
        return transfer(self, source, to, size_bytes, now, **late)

    monkeypatch.setattr(Network, "transfer", observed)
    job = small_job(workers=8, shards=3, network={"fabric": {"aggregators": 3}})
    spec = "nic:gbps=1,latency=0.0001;model:mb=12;hosts:workers=2,servers=2"
    run = simulate(job, Conditions("constant:seconds=0.1", network=spec), keep_records=True)
    network = run.summary()["network"]
    assert network["interfaces"].keys() == carried.keys()
    for host, found in network["interfaces"].items():
        assert found == pytest.approx(carried[host])

    vector = 12e6
    transfers, pulls = ([one for one in run.records if one["kind"] == kind] for kind in ("transfer", "pull"))
    assert any(len(set(one["hosts"])) > 1 for one in transfers)
    assert any(one["relay"] not in (None, one["host"]) for one in pulls)
    assert network["bytes_in"] == vector * len(transfers)
    assert network["bytes_out"] == vector * sum(one["sent"] for one in pulls)
    assert len({(one["slot"], one["sequence"]) for one in pulls}) == len(pulls), "each is logged once"
    servers = [name for name in carried if name.startswith("server")]
    assert sum(carried[name]["bytes_in"] for name in servers) == pytest.approx(network["bytes_in"])
    assert sum(carried[name]["bytes_out"] for name in servers) == pytest.approx(network["bytes_out"])
    handed = sum(host != one["host"] for one in transfers for host in one["hosts"])
    handed += sum(one["relay"] not in (None, one["host"]) for one in pulls)
    others = [carried[name] for name in carried if not name.startswith("server")]
    assert sum(one["bytes_in"] for one in others) == pytest.approx(vector * handed + network["bytes_out"])
    assert sum(one["bytes_out"] for one in others) == pytest.approx(vector * handed + network["bytes_in"])


def test_a_run_whose_transfers_are_not_planned_logs_none_of_this(small_job: SmallJob) -> None:
    run = simulate(small_job(), Conditions(network="nic:gbps=1,latency=0.0001"), keep_records=True)
    assert not {"transfer", "pull", "servers"} & {one["kind"] for one in run.records}
    assert "network" not in run.summary()
