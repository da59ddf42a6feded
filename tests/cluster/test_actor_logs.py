"""Python's log of the processes of a cluster tells what each of them did for a run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from distributed import Client

import psplatform as ps

LIMIT_S = 180.0


class Kept(logging.Handler):
    """Keeps what each actor says."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append((vars(record).get("actor", ""), record.getMessage()))


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Keep what is said under ``psplatform`` while a test lasts, as far as `INFO`."""
    logger, handler = logging.getLogger("psplatform"), Kept()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_each_actor_says_when_it_begins_and_ends(
    start_here: Callable[..., AbstractContextManager[Client]], kept: Kept, tmp_path: Path, until: Callable[..., None]
) -> None:
    fields = {"workload": "digits", "workers": 2, "shards": 1, "stop": ps.Stop(updates=10**6)}
    job = ps.Job(**fields, replication=ps.Bounded(), store=str(tmp_path / "run.zarr"))
    with start_here(workers=4, threads=2) as client, ps.train(job, client) as run:
        until(lambda: any("stands by for the coordinator" in text for _, text in kept.told), "there is a standby")
        run.stop("seen enough")
        run.wait(LIMIT_S)
    assert {text.partition(",")[0] for _, text in kept.told} == {run.run}
    begun = {actor: text for actor, text in kept.told if " is ready at " in text or " leads " in text}
    assert "the server of shard 0 is ready at" in begun["server-0"]
    assert "a replica of shard 0 is ready at" in begun["replica-0-0"]
    assert "leads the run" in begun["coordinator-1"]
    assert sum("a gradient worker is ready at" in text for text in begun.values()) == 2
    assert any(text.endswith("coordinator-1: the run is over: it ended as asked") for _, text in kept.told)
    assert {actor for actor, _ in kept.told} == {
        actor for actor, text in kept.told if ": ends: " in text or " over: " in text
    }
