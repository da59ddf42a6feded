"""A worker's process that others get the parameters through is stopped, and killed; so is the server that it asks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from relayed_pulls import hand_ons, relay_all_pulls

import psplatform as ps

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
RELAYED: dict[str, Any] = {
    "options": {"samples": 2000},
    "shards": 1,
    "policy": "asp",
    "optimizer": ps.SGD(lr=0.01),  # small enough for stale gradients
    "evaluate_every": 10,
    "transport": "comms",
    "network": ps.Network(ps.Fabric(tick_s=0.02, aggregators=1)),
    "worker_lease_s": 2,
    "server_lease_s": 2,
}


class Relayed:
    """A run on a process on each host, all of whose pulls go through the worker in the lowest slot."""

    def __init__(self, cluster: Any, until: Callable[..., None]) -> None:
        self._until, self.cluster = until, cluster
        for host in HOSTS:
            cluster.start_worker(host)
        until(lambda: len(cluster.pids()) == len(HOSTS), "a Dask worker is there on each host")
        relay_all_pulls(cluster.client, expected_s=0.0)
        self._pids = cluster.pids()
        self._able = list(self._pids)

    def relay(self) -> str:
        """Wait until one of the processes that are there hands on; return its address."""
        hand_ons(self.cluster.client, self._able)  # those so far do not count
        found: dict[str, int] = {}

        def look() -> bool:
            found.update(hand_ons(self.cluster.client, self._able))
            return bool(found)

        self._until(look, "a worker hands parameters on")
        return next(iter(found))

    def hit(self, address: str, number: signal.Signals) -> None:
        """Send a signal to a process, which is not asked any more."""
        self._able.remove(address)
        os.kill(self._pids[address], number)


@pytest.fixture
def relayed(new_cluster: Callable[[], Any], until: Callable[..., None]) -> Relayed:
    return Relayed(new_cluster(), until)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_workers_that_wait_for_a_relay_go_on_without_it(
    relayed: Relayed,
    number: signal.Signals,
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    reaches: Callable[[str, int], None],
) -> None:
    """They ask the server; another of them is the relay later on."""
    one = watch(relayed.cluster, start(relayed.cluster, **RELAYED, workers=3))
    reaches(one.run.store, 10)
    relayed.hit(relayed.relay(), number)
    reaches(one.run.store, 10)
    relayed.relay()
    one.finish()


def test_a_relay_asks_whoever_serves(
    relayed: Relayed,
    start: Callable[..., ps.Run],
    watch: Callable[..., Any],
    until: Callable[..., None],
    reaches: Callable[[str, int], None],
) -> None:
    """The server is killed, and the coordinator with it: another one tells workers where the relay is."""
    one = watch(relayed.cluster, start(relayed.cluster, **RELAYED, workers=2, replication=ps.Bounded()))
    reaches(one.run.store, 10)
    until(one.protected, "the run is protected")
    relayed.relay()
    relayed.hit(one.card()["address"], signal.SIGKILL)
    until(lambda: "server" in [each["role"] for each in one.log("promoted")], "a replica serves")
    reaches(one.run.store, 10)
    relayed.relay()
    one.finish()
