"""Nothing that is read from a store makes a program connect: Dask unpickles whatever a scheduler answers."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import psplatform as ps
from psplatform.cli.main import cli
from psplatform.client.clusters.connecting import connect_or_none
from psplatform.client.runs import records
from psplatform.client.runs.attaching import attach
from psplatform.client.runs.recovery import recover
from psplatform.errors import ConfigurationError, PsplatformError
from psplatform.replication.stores.store import create_run, update_run

RUN = "digits-bsp-1a2b3c"
AN_HOUR_S = 3600.0


@pytest.fixture
def store(crafted: Any, tmp_path: Path) -> str:
    """A store that names the crafted scheduler; its run has not ended, and has long said nothing."""
    place = str(tmp_path / "run.zarr")
    job = ps.Job(workload="digits").to_plain()
    create_run(place, {"run": RUN, "scheduler": crafted.address, "started": time.time() - AN_HOUR_S, "job": job})
    return place


def command(*words: str) -> Callable[[str], None]:
    def call(store: str) -> None:
        CliRunner().invoke(cli, [*words, store])

    return call


DOORS: dict[str, Callable[[str], Any]] = {
    "ps.attach": lambda store: attach(store).status(),
    "ps.recover": recover,
    "psplatform attach": command("attach"),
    "psplatform attach --stop": command("attach", "--stop"),
    "psplatform recover": command("recover"),
    "psplatform runs": command("runs"),
}


def test_the_scheduler_runs_code_in_who_connects_to_it(crafted: Any) -> None:
    """So the tests below can fail."""
    with contextlib.suppress(Exception):
        connect_or_none(crafted.address)
    assert crafted.connections > 0
    assert crafted.mark.exists()


@pytest.mark.parametrize("door", list(DOORS))
@pytest.mark.parametrize("state", ["silent", "starting", "recorded elsewhere"])
def test_a_store_is_not_followed_to_the_scheduler_that_it_names(
    door: str, state: str, crafted: Any, store: str, tmp_path: Path
) -> None:
    """Nor where the user's own records know a run of that id in another store, of which this one is a copy."""
    if state == "starting":
        update_run(store, started=time.time())
    if state == "recorded elsewhere":
        records.remember(records.Record(RUN, str(tmp_path / "own.zarr"), crafted.address, time.time()))
    with contextlib.suppress(PsplatformError):
        DOORS[door](store)
    assert not crafted.mark.exists()
    assert crafted.connections == 0


def test_the_sentence_says_which_scheduler_the_store_names_and_how_to_ask_it(crafted: Any, store: str) -> None:
    said = (
        f"the scheduler {crafted.address} that {store} names is in none of your own records, so it was not asked; "
        f"to ask it, give it: --scheduler {crafted.address}, or client=Client({crafted.address!r})"
    )
    with pytest.raises(PsplatformError) as caught:
        attach(store).wait(1.0)
    assert said in str(caught.value)
    update_run(store, started=time.time())
    for call in (attach, recover):
        with pytest.raises(ConfigurationError) as refused:
            call(store)
        assert said in str(refused.value)
        assert "it is starting" in str(refused.value)


@pytest.mark.parametrize("named", ["tcp://a:1\x1b]0;title\x07", "--help", 7, {"a": 1}, "tcp://" + "a" * 10_000])
def test_an_address_that_is_none_is_not_repeated(named: Any, store: str) -> None:
    update_run(store, scheduler=named)
    with pytest.raises(PsplatformError) as caught:
        attach(store).wait(1.0)
    said = str(caught.value)
    assert said.isprintable()
    assert "names no scheduler" in said or "its scheduler is no text" in said
    assert len(said) < 1000


def test_only_the_scheduler_of_the_users_own_record_is_asked(
    store: str, crafted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the store says by now."""
    own = "tcp://127.0.0.1:1"
    asked: list[str | None] = []
    for module in ("attaching", "recovery"):
        monkeypatch.setattr(
            f"psplatform.client.runs.{module}.connect_to", lambda record, *_: asked.append(record.scheduler)
        )
    records.remember(records.Record(RUN, store, own, time.time()))
    for door in ("ps.attach", "ps.recover"):
        with contextlib.suppress(PsplatformError):
            DOORS[door](store)
    assert asked == [own, own]
    with contextlib.suppress(PsplatformError):
        recover(store, ask_store_scheduler=False)
    assert asked == [own, own], "where that is not wanted, none"
    moved = f"{store}.moved"
    shutil.move(store, moved)
    with contextlib.suppress(PsplatformError):
        attach(moved).status()
    assert asked == [own, own], "the record is of the store that was there"
    assert crafted.connections == 0
