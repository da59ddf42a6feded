"""Where replicas go: never into the process of another copy of their shard; onto another host where there is one."""

from __future__ import annotations

import pytest

from psplatform.core.supervision.placement import Process, place
from psplatform.errors import ConfigurationError


def processes(*hosts: str) -> list[Process]:
    """Return one process per host named, in that order."""
    return [Process(f"tcp://{host}:{number}", host, {}) for number, host in enumerate(hosts)]


@pytest.mark.parametrize("hosts", ["aaaa", "aabb", "abcd"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_no_two_copies_of_a_shard_share_a_process(hosts: str, replicas: int) -> None:
    placed = place(processes(*hosts), workers=1, shards=2, replicas=replicas)
    for server, copies in zip(placed.servers, placed.replicas, strict=True):
        assert len({server, *copies}) == 1 + replicas


def test_a_replica_is_on_another_host_than_its_server() -> None:
    placed = place(processes(*"aabb"), workers=1, shards=2, replicas=1)
    for server, (replica,) in zip(placed.servers, placed.replicas, strict=True):
        assert server[6] != replica[6]


def test_too_few_processes_for_the_copies_of_a_shard_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="3 processes for its copies"):
        place(processes(*"aa"), workers=1, shards=1, replicas=2)
