"""A host is lost with everybody on it: three addresses of the loopback interface are three hosts to Dask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psplatform as ps

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
Record = dict[str, Any]


def test_a_run_survives_the_loss_of_a_host_and_its_roles_are_apart_again_afterwards(
    new_cluster: Callable[[], Any], start: Callable[..., ps.Run], watch: Callable[..., Any], until: Callable[..., None]
) -> None:
    """Server and coordinator die with their host; what is left is spread over the two others by itself."""
    cluster = new_cluster()
    hosts = {host: [cluster.start_worker(host) for _ in range(2)] for host in HOSTS}
    until(lambda: len(cluster.pids()) == 2 * len(HOSTS), "six Dask workers are there")
    run = start(cluster, shards=1, workers=2, max_workers=2, replication=ps.Chain())
    watched = watch(cluster, run)

    def survives() -> Record:
        return (watched.log("survives") or [{"what": "", "why": "not known yet"}])[-1]

    until(lambda: survives()["what"] == "any one host", "the run survives the loss of any one host")
    lost = run.roles()["coordinator"].split("//")[1].split(":")[0]
    for process in hosts[lost]:
        process.kill()
    until(lambda: bool(watched.log("promoted")), "another takes over")
    until(lambda: survives()["what"] == "any one host" and watched.protected(), "it survives the next one, too")
    told = [one["what"] for one in watched.log("survives")]
    assert "nothing" in told[told.index("any one host") :], "and it was said that it did not meanwhile"
    assert run.status()["phase"] == "running", "and the new coordinator is found"
    roles = run.roles()
    there = {name: address.split("//")[1].split(":")[0] for name, address in roles.items()}
    assert there["coordinator"] != there["standby"]
    assert lost not in there.values()
    run.stop("seen enough")
    assert run.wait(180.0)["outcome"] == "stopped"
