"""The table of shards: servers, replicas, and where each of them is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.dashboard.pages.protection import host_of, shard_table


def copy(name: str, process: str, status: str = "in sync") -> Any:
    return SimpleNamespace(copy=name, process=process, status=status)


@pytest.fixture
def view() -> Any:
    """A run of one shard whose server has two replicas, as a log tells it."""
    copies = {"server-0-2": copy("server-0-2", "tcp://10.0.0.2:4 pid 17"), "server-0-3": copy("server-0-3", "")}
    protection = SimpleNamespace(copies={0: copies}, epochs={})
    return SimpleNamespace(shards=1, protection=protection, shown={}, visible=5)


def test_a_shard_says_where_its_server_and_its_replicas_are(view: Any) -> None:
    roles = {"server-0": "tcp://10.0.0.1:3", "server-0-3": "tcp://10.0.0.3:5"}
    (row,) = shard_table(view, (), roles, {"tcp://10.0.0.1:3": "node-1"})
    assert (row["server"], row["host"], row["process"]) == ("server-0", "node-1", "tcp://10.0.0.1:3")
    said = "server-0-2: in sync at tcp://10.0.0.2:4 pid 17, server-0-3: in sync at tcp://10.0.0.3:5"
    assert row["replicas"] == said


def test_without_a_scheduler_the_log_says_where_a_shard_is(view: Any) -> None:
    view.protection.copies[0]["server-0-2"].status = "promoted"
    (row,) = shard_table(view, (), {}, {})
    assert (row["server"], row["host"], row["process"]) == ("server-0-2", "10.0.0.2", "tcp://10.0.0.2:4 pid 17")
    assert row["replicas"] == "server-0-3: in sync"
    assert (host_of("", {}), host_of("a process", {})) == ("", "")
