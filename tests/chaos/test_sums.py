"""A worker's process that sums what others send is stopped, and killed; so are the servers and the coordinator."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from summed_gradients import sum_all_gradients

import psplatform as ps

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
BOUND = 8
SUMMED: dict[str, Any] = {
    "options": {"samples": 2000},
    "shards": 1,
    "policy": "asp",
    "optimizer": ps.SGD(lr=0.01),  # small enough for sums of four gradients, which are stale besides
    "evaluate_every": 25,
    "transport": "comms",
    "network": ps.Network(ps.Fabric(tick_s=0.05, aggregators=1)),
    "workers": 4,
    "worker_lease_s": 2,
    "server_lease_s": 2,
}


class Summed:
    """A run on a process on each host, whose gradients the worker in the lowest slot sums."""

    def __init__(self, cluster: Any, begin: Callable[[Any], Any], until: Callable[..., None]) -> None:
        self._until = until
        for host in HOSTS:
            cluster.start_worker(host)
        until(lambda: len(cluster.pids()) == len(HOSTS), "a Dask worker is there on each host")
        sum_all_gradients(cluster.client)
        self._pids = cluster.pids()
        self.watched = begin(cluster)
        self.goes_on()

    def goes_on(self) -> None:
        """Wait until several more sums are committed."""

        def sums() -> int:
            return sum("bundles" in one for one in self.watched.log("commit"))

        wanted = sums() + 5
        self._until(lambda: sums() >= wanted, "gradients are summed")

    def aggregator(self) -> str:
        """Return the address of the process that sums: of the live worker in the lowest slot."""
        gone = {(one["slot"], one["incarnation"]) for one in self.watched.log("lost")}
        live = [one for one in self.watched.log("joined") if (one["slot"], one["incarnation"]) not in gone]
        address: str = min(live, key=lambda one: one["slot"])["process"].split()[0]
        return address

    def promoted(self) -> list[str]:
        """Return the roles that others have taken over, in order."""
        return [one["role"] for one in self.watched.log("promoted")]

    def hit(self, address: str, number: signal.Signals) -> None:
        os.kill(self._pids[address], number)


@pytest.fixture
def summed(
    new_cluster: Callable[[], Any],
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    until: Callable[..., None],
) -> Callable[..., Summed]:
    def make(**fields: Any) -> Summed:
        return Summed(new_cluster(), lambda cluster: watch(cluster, start(cluster, **SUMMED, **fields)), until)

    return make


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_what_a_lost_aggregator_had_is_sent_again(summed: Callable[..., Summed], number: signal.Signals) -> None:
    """Nothing of it is lost: every gradient that was computed is applied, or the log says why not."""
    run = summed()
    address = run.aggregator()
    run.hit(address, number)
    run.goes_on()
    assert run.aggregator() != address or number is signal.SIGSTOP
    run.watched.finish()


def test_sums_reach_whoever_serves_and_are_ordered_by_whoever_leads(
    summed: Callable[..., Summed], until: Callable[..., None], reaches: Callable[[str, int], None]
) -> None:
    """The server is killed while sums are under way; then the coordinator with what it has granted."""
    run = summed(replication=ps.Bounded(max_divergence=BOUND, unit="updates"))
    until(run.watched.protected, "the run is protected")
    run.hit(run.watched.actors("server-0")["server-0"], signal.SIGKILL)
    until(lambda: "server" in run.promoted(), "a replica serves")
    run.goes_on()
    until(run.watched.protected, "the run is protected again")
    takeovers = run.promoted().count("coordinator")
    run.hit(run.watched.card()["address"], signal.SIGKILL)
    until(lambda: run.promoted().count("coordinator") > takeovers, "a standby takes over")
    run.goes_on()
    assert not run.watched.log("beyond bound")
    run.watched.finish()
