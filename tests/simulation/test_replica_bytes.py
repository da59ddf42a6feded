"""What replicas are sent by workers whose gradients are summed on their way."""

from __future__ import annotations

from collections import Counter

import pytest

import psplatform as ps
from psplatform.simulation.network import Network

MODEL_MB = 100.0
CONDITIONS = ps.Conditions(
    compute="constant:seconds=0.1",
    network="nic:gbps=10,latency=0.0001;model:mb=100;hosts:workers=2,servers=1",
    timing_only=True,
)


@pytest.mark.parametrize("policy", ["bsp", "asp"])
def test_a_replica_that_takes_gradients_from_workers_is_sent_each_sum_once(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes for each gradient are divided by how many are in a vector, or by more where it catches up by states."""
    sent = Counter[str]()
    transfer = Network.transfer

    def counted(self: Network, sender: str, receiver: str, size: float, now: float, *, late_s: float = 0) -> float:
        sent[receiver.partition(" ")[0]] += size  # type: ignore[assignment]  # they are floats
        return transfer(self, sender, receiver, size, now, late_s=late_s)

    monkeypatch.setattr(Network, "transfer", counted)
    workers, updates = 12, 10 if policy == "bsp" else 120
    job = ps.Job(
        workload="digits",
        policy=policy,
        workers=workers,
        stop=ps.Stop(updates=updates),
        replication=ps.Bounded(max_divergence=60, unit="updates", source="workers"),
        network=ps.Network(ps.Fabric(aggregators=5)),
        evaluate_every=None,
    )
    network = ps.simulate(job, CONDITIONS).summary()["network"]
    gradients = updates * workers if policy == "bsp" else updates
    assert network["aggregation"] > 1.3
    assert 0 < sent["replica"] / gradients <= 1.05 * MODEL_MB * 1e6 / network["aggregation"]
