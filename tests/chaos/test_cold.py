"""Replicas in the store: a process is made of what is kept there, as often as the one before it is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import psplatform as ps
from psplatform.client.runs.recovery import recover
from psplatform.replication.checkpoints.retention import checkpoints_of

Start = Callable[..., ps.Run]
Watch = Callable[[Any, ps.Run], Any]
Until = Callable[..., None]
Reaches = Callable[[str, int], None]
Segments = Callable[[str], list[Path]]
LIMIT_S = 180.0
BOUND = 8
COLD = {
    "workload": "digits",
    "options": {},
    "evaluate_every": 25,
    "replication": ps.Bounded(max_divergence=BOUND, unit="updates", target="store"),
    "worker_lease_s": 2,
    "server_lease_s": 2,
}


class FaultTarget:
    """A run whose replicas are in the store, and what befalls its servers."""

    def __init__(self, seen: Any, until: Until, reaches: Reaches) -> None:
        self.cluster, self.run, self._seen = seen.cluster, seen.run, seen
        self.log, self.protected = seen.log, seen.protected
        self._until, self._reaches = until, reaches
        reaches(self.run.store, 20)

    def process_of_server(self, shard: int) -> tuple[str, int]:
        """Return address and process id of the server of a shard."""
        self.run.status()  # finds the coordinator where another has taken over
        standing = self.run.standing()
        _, peer = standing["copies"][standing["shards"][shard]["server"]]
        return peer.address, self.cluster.pids()[peer.address]

    def hurt(self, shard: int, way: signal.Signals) -> int:
        """Send a signal to the server of a shard, and see a process made of what the store keeps; return whose id."""
        self._until(self.protected, "the run is protected")
        address, pid = self.process_of_server(shard)
        before = len(self.log("resumed"))
        os.kill(pid, way)
        self._until(lambda: self.has_resumed(shard, before), f"shard {shard} goes on under another server")
        assert self.failovers(shard)[-1]["process"] == f"{address} pid {pid}", "the lost process is named"
        self._reaches(self.run.store, 20)
        return pid

    def has_resumed(self, shard: int, before: int) -> bool:
        """Whether the shard is on record as going on, beyond so many records."""
        return shard in [one["shard"] for one in self.log("resumed")[before:]]

    def failovers(self, shard: int) -> list[dict[str, Any]]:
        """Return the promotions of a shard; nothing beyond the bound was lost with any."""
        found = [one for one in self.log("promoted") if one["shard"] == shard]
        assert all(0 <= one["updates_lost"] <= one["bound"] == BOUND for one in found)
        return found

    def finish(self) -> dict[str, Any]:
        """Stop the run; return its summary, having seen that it ended well and had gone on learning."""
        self.run.status()  # finds the coordinator where another has taken over
        summary: dict[str, Any] = self._seen.finish()
        return summary


@pytest.fixture
def fault_target(start: Start, watch: Watch, until: Until, reaches: Reaches) -> Callable[..., FaultTarget]:
    """Start a run to be hurt."""

    def begin(cluster: Any, **fields: Any) -> FaultTarget:
        return FaultTarget(watch(cluster, start(cluster, **{**COLD, **fields})), until, reaches)

    return begin


def test_a_server_is_made_of_what_the_store_keeps_as_often_as_one_is_lost(
    new_cluster: Callable[[], Any],
    fault_target: Callable[..., FaultTarget],
    reaches: Reaches,
    until: Until,
    segments: Segments,
) -> None:
    """The first is killed; the one made of the store is stopped, and does not speak again when it wakes up.

    The third shares its process with the other server and the coordinator, and is killed with them: whoever takes over
    makes both servers of what the store keeps.
    """
    cluster = new_cluster()
    cluster.repair(5)  # whoever is stopped is alone in the only process that has no other role
    one = fault_target(cluster)
    one.hurt(1, signal.SIGKILL)
    stopped = one.hurt(1, signal.SIGSTOP)
    os.kill(stopped, signal.SIGCONT)
    reaches(one.run.store, 20)
    assert len(one.failovers(1)) == 2, "nobody heeds it"
    one.hurt(1, signal.SIGKILL)
    until(one.protected, "the run is protected")
    summary = one.finish()
    assert sorted(each["role"] for each in summary["failovers"]) == ["coordinator", *["server"] * 4]
    assert [each["epoch"] for each in one.failovers(1)] == [2, 3, 4]
    assert [each["epoch"] for each in one.failovers(0)] == [2]
    until(lambda: segments(one.run.run) == [], "nothing is left in shared memory")


def test_a_recovered_run_begins_at_its_checkpoint_and_not_at_what_was_kept_of_shards(
    new_cluster: Callable[[], Any],
    job: Callable[..., ps.Job],
    watch: Watch,
    until: Until,
    reaches: Reaches,
    log: Callable[..., list[dict[str, Any]]],
) -> None:
    """Everything is killed at once; what was kept was further on, of other shards, and is gone soon.

    So is the checkpoint: a server that is lost after that goes on all the same.
    """
    dead = new_cluster()
    dead.repair(4)
    run = ps.train(job(**{**COLD, "checkpoints": ps.Checkpoints(every_updates=20, keep=2)}), dead.client)
    until(lambda: len(checkpoints_of(run.store)) >= 2, "two checkpoints")
    reaches(run.store, 5)
    dead.end()
    newest = checkpoints_of(run.store)[-1]
    living = new_cluster()
    living.repair(6)
    again = recover(run.store, living.client, shards=3, stop=ps.Stop(updates=10**9))
    one = FaultTarget(watch(living, again), until, reaches)
    kept = Path(run.store) / "cold"
    until(lambda: [each.name for each in kept.iterdir()] == [f"{one.run.standing()['term']:08d}"], "the old is removed")
    until(lambda: newest.number not in [each.number for each in checkpoints_of(run.store)], "the checkpoint is removed")
    one.hurt(2, signal.SIGKILL)
    records = log(run.store)
    begun = max(place for place, each in enumerate(records) if each["kind"] == "run")
    first = next(each["version"] for each in records[begun:] if each["kind"] == "commit")
    assert first == newest.version + 1, "it began at the checkpoint"
    one.run.stop("seen enough")
    one.run.wait(LIMIT_S)


def test_a_server_is_made_of_the_numbers_handed_in_where_nothing_else_was_kept(
    new_cluster: Callable[[], Any],
    job: Callable[..., ps.Job],
    watch: Watch,
    until: Until,
    reaches: Reaches,
) -> None:
    """The bound lets replicas stay for good as they were at the beginning."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(8, 4096), nn.Tanh(), nn.Linear(4096, 3))
    inputs = torch.randn(512, 8)
    wanted = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cluster = new_cluster()
    cluster.repair(5)
    given = {
        "workload": None,
        "options": {},
        "model": model,
        "loss": nn.functional.cross_entropy,
        "data": (inputs, inputs.argmax(1) % 3),
        "optimizer": ps.SGD(lr=1e-9),
        "replication": ps.Bounded(max_divergence=10**6, unit="updates", target="store"),
        "server_lease_s": 2,
    }
    one = FaultTarget(watch(cluster, ps.train(job(**given), cluster.client)), until, reaches)
    until(one.protected, "the run is protected")
    os.kill(one.process_of_server(1)[1], signal.SIGKILL)
    until(lambda: one.has_resumed(1, 0), "shard 1 goes on under another server")
    assert one.log("promoted")[-1]["position"] == 0
    one.run.stop("seen enough")
    one.run.wait(LIMIT_S)
    found = one.run.model().state_dict()
    assert all(torch.allclose(found[name], tensor, atol=1e-5) for name, tensor in wanted.items())
