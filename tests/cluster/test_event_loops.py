"""Programs in a running event loop, as a notebook's are, and a coordinator whose own loop is held up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import psplatform as ps
from psplatform.client.run import Run

Fields = dict[str, Any]
LIMIT_S = 180.0


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


def test_a_client_is_used_in_the_thread_of_a_running_event_loop(client: Client, small: Fields, tmp_path: Path) -> None:
    """A cell of a notebook is a part of a coroutine: it starts a run, looks at it, and waits for it."""

    async def cell() -> dict[str, Any]:
        run = ps.train(ps.Job(**small, store=str(tmp_path / "run.zarr")), client)
        assert ps.attach(run.run, client).status()["phase"] != "unknown"
        return run.wait(LIMIT_S)

    assert asyncio.run(cell())["updates"] == 20


def test_a_run_makes_its_own_cluster_there(small: Fields, tmp_path: Path) -> None:
    async def cell() -> int:
        fields = small | {"workers": 1, "shards": 1, "replication": ps.NoReplication(), "stop": ps.Stop(updates=3)}
        with ps.train(ps.Job(**fields, store=str(tmp_path / "run.zarr"))) as run:
            return int(run.wait(LIMIT_S)["updates"])

    assert asyncio.run(cell()) == 3


def hold(release: str) -> None:
    """Hold up the event loop in which this runs until there is a file of that name."""
    while not Path(release).exists():
        time.sleep(0.02)


def test_a_run_whose_coordinator_is_held_up_is_not_called_gone(
    start: Callable[..., Run],
    client: Client,
    small: Fields,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., None],
) -> None:
    """It has no standby that could take over; when it answers again, the run goes on to its end."""
    run = start(**small | {"stop": ps.Stop(updates=10**9), "replication": ps.NoReplication()})
    until(lambda: run.metrics()["updates"] > 0, "the first update")
    address = run.roles()["coordinator"]
    monkeypatch.setattr("psplatform.client.runs.coordinator_link._DEADLINE_S", 0.5)
    held = threading.Thread(target=client.run, args=(hold, str(tmp_path / "release")), kwargs={"workers": [address]})
    held.start()
    try:
        until(lambda: run.status()["phase"] == "unknown", "the coordinator does not answer")
        found = run.status()
        assert found["failure"] is None
        assert "it is busy" in found["trouble"]
    finally:
        (tmp_path / "release").touch()
        held.join(LIMIT_S)
    monkeypatch.undo()
    until(lambda: run.status()["phase"] == "running", "the coordinator answers again")
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["detail"] == "seen enough"
