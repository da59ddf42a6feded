"""The runs of a folder are listed once for all who look, read once, and told of as they are now."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from psplatform.client.runs.listing import Listed, State, look_at
from psplatform.dashboard import library as module
from psplatform.dashboard.library import MOST_IN_USE, MOST_READINGS, Library
from psplatform.dashboard.read_models.reading import Reading
from psplatform.dashboard.settings import Settings
from psplatform.replication.stores.store import update_run

ALWAYS_S = 1e9


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time that the library sees, to be changed."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the stores whose logs were begun to be read."""
    stores: list[str] = []
    monkeypatch.setattr(module, "Reading", lambda store: stores.append(store) or Reading(store))
    return stores


def _of(shelf: Any) -> Library:
    return Library(Settings(folder=str(shelf.folder)))


def _silent(store: str) -> Listed:
    """Return a run whose log has not grown for long."""
    for path in Path(store, "log").iterdir():
        os.utime(path, (1.6e9, 1.6e9))
    return look_at(store)


def test_what_is_told_of_a_run_that_died_is_read_after_its_end(shelf: Any) -> None:
    """It trained on after the last look, and nobody could write down how it ended."""
    store, library = shelf.live("digits-a", upto=60), _of(shelf)
    before = library.brief(look_at(store), ALWAYS_S)
    rest = [one for one in shelf.trained.records if one["kind"] not in ("finished", "left")][60:]
    shelf.log(store, rest, term=2)
    after = library.brief(_silent(store), ALWAYS_S)
    assert before is not None
    assert after is not None
    assert (before.complete, after.complete) == (True, True)
    assert after.updates == 20 > before.updates


def test_what_is_told_of_a_run_that_only_fell_silent_follows_its_log(shelf: Any) -> None:
    store, library = shelf.live("digits-a", upto=60), _of(shelf)
    before = library.brief(_silent(store), ALWAYS_S)
    rest = [one for one in shelf.trained.records if one["kind"] not in ("finished", "left")][60:]
    shelf.log(store, rest, term=2)
    after = library.brief(_silent(store), ALWAYS_S)
    assert before is not None
    assert after is not None
    assert after.updates == 20 > before.updates


@pytest.mark.parametrize("make", ["finished", "failed", "recoverable"])
def test_a_run_that_ended_is_read_once(shelf: Any, make: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, library = getattr(shelf, make)("digits-a"), _of(shelf)
    before = library.brief(look_at(store), ALWAYS_S)
    monkeypatch.setattr(Reading, "refresh", lambda *rest: pytest.fail("read it again"))
    assert before is not None
    assert library.brief(look_at(store), ALWAYS_S) == before


def test_an_outcome_that_came_since_is_told(shelf: Any) -> None:
    store, library = shelf.live("digits-a"), _of(shelf)
    first = library.brief(_silent(store), ALWAYS_S)
    shelf.log(store, [one for one in shelf.trained.records if one["kind"] == "finished"], term=2)
    update_run(store, outcome="updates")
    second = library.brief(look_at(store), ALWAYS_S)
    assert first is not None
    assert second is not None
    assert second.progress == 1.0


def test_many_runs_that_are_in_use_are_not_read_again(clock: list[float], made: list[str], shelf: Any) -> None:
    """A table of more runs than are kept otherwise would begin each log anew at each refresh."""
    library, stores = _of(shelf), [f"memory://in-use-{n}" for n in range(3 * MOST_READINGS)]
    for _ in range(5):
        clock[0] += 2.0
        for store in stores:
            library.reading(store)
    assert made == stores


def test_readings_are_bounded(clock: list[float], shelf: Any) -> None:
    """By one limit while they are in use, by a lower one later; the newest are kept."""
    library, stores = _of(shelf), [f"memory://bounded-{n}" for n in range(MOST_IN_USE + 9)]
    for store in stores:
        clock[0] += 0.01
        library.reading(store)
    assert list(library._readings) == stores[-MOST_IN_USE:]
    clock[0] += 3600.0
    library.reading(stores[-1])
    assert list(library._readings) == stores[-MOST_READINGS:]


def test_one_session_lists_while_others_take_the_last_list(
    clock: list[float], shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.finished("digits-a")
    library, begun, done, listings = _of(shelf), Event(), Event(), []
    first = library.runs()
    clock[0] += 60.0

    def slow(folder: str, live: frozenset[str]) -> list[Listed]:
        listings.append(folder)
        begun.set()
        assert done.wait(180)
        return []

    monkeypatch.setattr(module, "list_runs", slow)
    lister = Thread(target=library.runs)
    lister.start()
    assert begun.wait(180)
    assert [library.runs() for _ in range(3)] == [first] * 3
    done.set()
    lister.join()
    assert library.runs() == []
    assert len(listings) == 1


def test_a_list_that_was_begun_before_it_was_forgotten_is_not_kept(shelf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that a page has just started must be in the next one."""
    library, whole = _of(shelf), module.list_runs

    def forgetful(folder: str, live: frozenset[str]) -> list[Listed]:
        found = whole(folder, live)
        shelf.finished("digits-a")
        library.forget_list()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, "list_runs", forgetful)
        assert library.runs() == []
    assert [one.run for one in library.runs()] == ["digits-a"]


def test_nothing_is_kept_of_a_store_that_was_removed(clock: list[float], shelf: Any) -> None:
    stores, library = [shelf.recoverable(name) for name in ("digits-a", "digits-b")], _of(shelf)
    for one in library.runs():
        assert one.state is State.RECOVERABLE
        assert library.brief(one, ALWAYS_S) is not None
        assert library.checkpoints(one.store)
    shutil.rmtree(stores[0])
    clock[0] += 60.0
    library.runs()
    for kept in (library._briefs, library._checkpoints, library._readings):
        assert list(kept) == stores[1:]
