"""Which runs there are, and what can be done with each: told from their stores alone, without reading a log."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from psplatform.client.runs import records
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.retention import held_checkpoints
from psplatform.replication.stores.objects import file_system_of
from psplatform.replication.stores.places import place_of, whole_place
from psplatform.replication.stores.store import describe_run, holds_parts
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.segments import START, Position
from psplatform.telemetry.words import shortened

FRESH_S: Final = 10.0
"""A run that goes on brings its records out every second or so, unless its iterations take longer."""

STARTING_S: Final = 60.0
"""For processes to load the model and the data, before a run has anything to log."""

_LONGEST_REASON: Final = 1000
"""Characters of why a store cannot be read: the path of the store may be in it more than once."""

_ENDINGS: Final = {
    "updates": "it made the updates that it was asked for",
    "epochs": "it made the passes over the data that it was asked for",
    "seconds": "its time was over",
    "reached target": "it reached its target",
    "patience": "it got no better any more",
    "stopped": "it was stopped",
}


Live = Mapping[str, str] | Collection[str]


class State(StrEnum):
    """What a run is, which says what can be done with it."""

    LIVE = "live"
    FINISHED = "finished"
    FAILED = "failed"
    RECOVERABLE = "recoverable"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Listed:
    """A run as its store shows it.

    Attributes
    ----------
    run
        Its id, or the folder's name where the store cannot be read.
    store
        The place of the store.
    reason
        Why it is in that state, in one sentence for people.
    description
        What the store says of the run, as `describe_run` returns it; empty where it is foreign.
    checkpoint
        Number of the newest complete checkpoint.  ``None`` if there is none, and where the state does not depend on
        it, of a live or a finished run: then the checkpoints are not looked at.
    """

    run: str
    store: str
    state: State
    reason: str
    description: Mapping[str, Any]
    checkpoint: int | None = None


def list_runs(folder: str, live: Live = frozenset()) -> list[Listed]:
    """Return the runs whose stores lie directly in `folder`, the one that was started last first.

    Parameters
    ----------
    folder
        A local path, or any URL that fsspec knows.  Where there is no such folder, there are no runs.
    live
        The runs that a scheduler says go on: the store of each by its id, or ids alone where stores are not known.
        With stores, a copy of a store is not taken for the run that goes on in the other.

    Raises
    ------
    StoreError
        If the folder cannot be listed.  A store that cannot be read is in the list, as foreign.
    """
    return newest_first([look_at(store, live) for store in _stores_in(place_of(folder))])


def newest_first(found: Iterable[Listed]) -> list[Listed]:
    """Return runs in the order of the table: the one that was started last first."""
    return sorted(found, key=lambda one: (-_started(one.description), one.store))


def look_at(store: str, live: Live = frozenset()) -> Listed:
    """Return the run in `store`, whatever is there; nothing that is found raises.

    Its zarr.json is read; the log is only listed, and that and the checkpoints only where they decide.  Of a run with a
    cluster of its own that this user has started on this machine, it is known whether its program has ended.

    Parameters
    ----------
    live
        The runs that a scheduler says go on: the store of each by its id, or ids alone where stores are not known.
        With stores, a copy of a store is not taken for the run that goes on in the other.
    """
    store = place_of(store)
    try:
        description = describe_run(store)
        run: str = description["run"]
        state, reason, checkpoint = _judge(store, description, goes_on=goes_on(run, store, live))
    except StoreError as error:
        name = store.rstrip("/").rpartition("/")[2]
        return Listed(name, store, State.FOREIGN, shortened(error, _LONGEST_REASON), {})
    return Listed(run, store, state, reason, description, checkpoint)


def goes_on(run: str, store: str, live: Live) -> bool:
    """Whether the run in a store is one of those that a scheduler says go on."""
    if run not in live:
        return False
    return not isinstance(live, Mapping) or whole_place(live[run]) == whole_place(store)


def is_folder_of_stores(path: Path) -> bool:
    """Whether stores of runs may lie in a folder: one that holds parts of a run is a store itself."""
    # Unlike Path, os.path takes what may not be looked at for what is not there.
    there = os.path.isdir(path) and not os.path.exists(path / "zarr.json")  # noqa: PTH110, PTH112
    return there and not holds_parts(str(path))


def is_starting(store: str, description: Mapping[str, Any]) -> bool:
    """Whether a run was started, or recovered, so lately that it need not have logged anything since."""
    # One that was recovered describes itself anew and has a log from before.
    lately = -FRESH_S < time.time() - _started(description) < STARTING_S
    return lately and _newest_segment(store).term < _term(description)


def _judge(store: str, description: Mapping[str, Any], *, goes_on: bool) -> tuple[State, str, int | None]:
    """Return state, reason and newest checkpoint of a run that its store describes."""
    outcome = description.get("outcome")
    if outcome == "failed":
        return _after(store, _error(description))
    if outcome is not None:
        return State.FINISHED, _ENDINGS.get(str(outcome), f"it ended: {shortened(outcome)}"), None
    if goes_on:
        return State.LIVE, "its scheduler says that it goes on", None
    newest = _newest_segment(store)
    program_ended = records.program_has_ended(description["run"], store, _started(description))
    silent_s = _age_s(store, f"log/{newest.name}") if newest != START else None
    if not program_ended and silent_s is not None and -FRESH_S < silent_s < FRESH_S:
        return State.LIVE, f"its log grew {max(silent_s, 0.0):.0f} s ago", None
    if not program_ended and is_starting(store, description):
        return State.LIVE, "it is starting", None
    silence = f"{_silence(silent_s)} and no scheduler that was asked knows it"
    return _after(store, "the program that ran it has ended, and its cluster with it" if program_ended else silence)


def _silence(silent_s: float | None) -> str:
    """Return how long a run has logged nothing: of a time to come, another clock's, nobody can tell."""
    if silent_s is None:
        return "it has no log"
    if silent_s < 0:
        return f"its log is dated {-silent_s:.0f} s ahead of the clock of this machine"
    return f"nothing was logged for {silent_s:.0f} s"


def _after(store: str, what: str) -> tuple[State, str, int | None]:
    """Return what a run is that was ended by `what`."""
    complete = [one.number for one in held_checkpoints(store) if one.state == "complete"]
    if complete:
        return State.RECOVERABLE, f"{what}; recover it from checkpoint {complete[-1]}", complete[-1]
    return State.FAILED, f"{what}; it is lost without a checkpoint, so start it again in another store", None


def _error(description: Mapping[str, Any]) -> str:
    """Return what ended a run that failed, without a traceback."""
    failure = description.get("failure")
    said = failure.get("message") if isinstance(failure, dict) else None
    lines = str(said or description.get("error") or "").splitlines()
    return shortened(lines[0].rstrip(".")) if lines else "it failed, and its store does not say why"


def _newest_segment(store: str) -> Position:
    return max(SegmentFolder(store).newest(), default=START)


def _age_s(store: str, path: str) -> float | None:
    """Return how long ago a file of a store was written, ``None`` where its file system does not know."""
    files, root = file_system_of(store)
    try:
        written: float = files.modified(f"{root.rstrip('/')}/{path}").timestamp()
    except Exception:  # noqa: BLE001  every fsspec driver has exceptions of its own, and some know no times
        return None
    return time.time() - written


def _term(description: Mapping[str, Any]) -> int:
    term = description.get("term", 1)
    return term if isinstance(term, int) else 1


def _started(description: Mapping[str, Any]) -> float:
    started = description.get("started", 0.0)
    return float(started) if isinstance(started, int | float) else 0.0


def _stores_in(folder: str) -> list[str]:
    """Return what has the description of a run, or, where that was lost, parts of one."""
    try:
        files, root = file_system_of(folder)
        files.invalidate_cache(root)
        entries = files.ls(root, detail=True) if files.isdir(root) else []
        names = sorted(str(one["name"]).rstrip("/").rpartition("/")[2] for one in entries if one["type"] == "directory")
        places = [f"{folder.rstrip('/')}/{name}" for name in names]
        return [one for one in places if files.exists(f"{file_system_of(one)[1]}/zarr.json") or holds_parts(one)]
    except StoreError:
        raise
    except Exception as error:  # every fsspec driver has exceptions of its own
        raise StoreError(f"cannot list the runs in {folder} ({error}); check the path", store=folder) from error
