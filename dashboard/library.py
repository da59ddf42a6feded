"""The runs that a dashboard shows: listed from their stores, read from their logs, in bounded memory."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from psplatform.client.runs.listing import Listed, Live, State, list_runs, look_at, newest_first
from psplatform.dashboard.read_models.reading import Models, Reading
from psplatform.dashboard.settings import Settings
from psplatform.errors import PsplatformError, StoreError
from psplatform.replication.checkpoints.retention import held_checkpoints
from psplatform.telemetry.log.folder import SegmentFolder
from psplatform.telemetry.log.segments import START, Position

_log: Final = logging.getLogger(__name__)

MOST_READINGS: Final = 12
"""Runs whose models are kept; those that were not looked at for longest are read again when they are."""

MOST_IN_USE: Final = 64
"""Runs whose models are kept while they are in use, as all that go on are: a table of more reads logs again."""

_IN_USE_S: Final = 60.0
"""After a look at a run in which it counts as in use."""

_LIST_EVERY_S: Final = 2.0
_CHECKPOINTS_EVERY_S: Final = 5.0

SPARKS: Final = 40
"""Points of a sparkline."""


@dataclass(frozen=True, slots=True)
class Brief:
    """What a table tells about one run.

    Attributes
    ----------
    progress
        Share of the way to the nearest of its ends, in [0, 1]; ``None`` where none is a number of something.
    losses
        Up to `SPARKS` losses in the order of time, held-out ones where there are any.
    protection
        ``in sync``, ``unprotected (shards 0, 2)``, ``none``.
    complete
        Whether all of its log was read.
    """

    progress: float | None
    updates: int
    loss: float | None
    accuracy: float | None
    losses: tuple[float, ...]
    updates_per_second: float
    protection: str
    complete: bool


@contextmanager
def understood(store: str) -> Iterator[None]:
    """Turn what a log of another writer makes of our models into a sentence; the program's log has the rest.

    Raises
    ------
    StoreError
        If what the store contains is not of the kind that it should be.
    """
    try:
        yield
    except PsplatformError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        _log.warning("cannot show %s", store, exc_info=True)
        message = f"the log of {store} says what this psplatform does not understand ({type(error).__name__})"
        raise StoreError(f"{message}; look at it with the psplatform that wrote it", store=store) from error


@dataclass(frozen=True, slots=True)
class _Kept:
    """A brief, and what it was read of: a life of the run and its end, if it had one, and how far the log reached."""

    brief: Brief
    life: tuple[Any, Any]
    ended: bool
    end: Position

    def is_of(self, listed: Listed) -> bool:
        """Whether reading the run again would tell the same."""
        if not (self.brief.complete and self.ended and self.life == _life(listed)) or listed.state is State.LIVE:
            return False
        # What has an outcome logs nothing any more; a run that only fell silent may yet have gone on.
        return self.life[1] is not None or self.end == max(SegmentFolder(listed.store).newest(), default=START)


def _life(listed: Listed) -> tuple[Any, Any]:
    # A recovered run ends more than once: what is kept is of one life and one end.
    return listed.description.get("term", 1), listed.description.get("outcome")


def _read(listed: Listed, reading: Reading, budget_s: float) -> _Kept:
    complete = reading.refresh(budget_s).complete
    brief, end = reading.read(lambda models: (_brief(listed.description, models, complete=complete), reading.position))
    return _Kept(brief, _life(listed), listed.state is not State.LIVE, end)


class Library:
    """The runs of a folder, or the one of a store; may be used by several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._listing = Lock()
        self._forgotten = 0
        self._listed: tuple[float, tuple[Live, tuple[str, ...]], list[Listed]] | None = None
        self._readings: OrderedDict[str, tuple[float, Reading]] = OrderedDict()
        self._briefs: dict[str, _Kept] = {}
        self._checkpoints: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    def runs(self, live: Live = frozenset(), others: Sequence[str] = ()) -> list[Listed]:
        """Return the runs, the newest first, as of a few seconds ago.

        Parameters
        ----------
        others
            Stores elsewhere that are shown too where they can be read.

        Raises
        ------
        StoreError
            If the folder cannot be listed.
        """
        asked = live, tuple(others)
        last, fresh = self._last(asked)
        if last is not None and fresh:
            return last
        # One session lists for all of them; the others show meanwhile what was there before.
        if not self._listing.acquire(blocking=last is None):
            return last or []
        try:
            last, fresh = self._last(asked)
            return last if last is not None and fresh else self._list(*asked)
        finally:
            self._listing.release()

    def _last(self, asked: tuple[Live, tuple[str, ...]]) -> tuple[list[Listed] | None, bool]:
        """Return the last list that was asked for in the same way, and whether it is of these seconds."""
        with self._lock:
            if self._listed is None or self._listed[1] != asked:
                return None, False
            return self._listed[2], time.monotonic() < self._listed[0] + _LIST_EVERY_S

    def _list(self, live: Live, others: tuple[str, ...]) -> list[Listed]:
        with self._lock:
            forgotten = self._forgotten
        if self._settings.store is not None:
            found = [look_at(self._settings.store, live)]
        else:
            found = list_runs(self._settings.folder, live)
        found = _with_others(found, others, live)
        stores = {one.store for one in found}
        with self._lock:
            if forgotten == self._forgotten:
                self._listed = time.monotonic(), (live, others), found
            for kept in (self._readings, self._briefs, self._checkpoints):
                for store in kept.keys() - stores:
                    del kept[store]
        return found

    def forget_list(self) -> None:
        """Look anew at the next question which runs there are."""
        with self._lock:
            self._listed = None
            self._forgotten += 1

    def reading(self, store: str) -> Reading:
        """Return the models of the run in a store."""
        now = time.monotonic()
        with self._lock:
            _, found = self._readings.get(store) or (now, Reading(store))
            self._readings[store] = now, found
            self._readings.move_to_end(store)
            while len(self._readings) > MOST_READINGS:
                looked_at, _ = next(iter(self._readings.values()))
                if len(self._readings) <= MOST_IN_USE and now < looked_at + _IN_USE_S:
                    break
                self._readings.popitem(last=False)
            return found

    def brief(self, listed: Listed, budget_s: float) -> Brief | None:
        """Return what a table tells about a run, read on for so long at most; ``None`` where it cannot be read."""
        if listed.state is State.FOREIGN:
            return None
        with self._lock:
            kept = self._briefs.get(listed.store)
        if budget_s <= 0 and kept:
            return kept.brief
        try:
            with understood(listed.store):
                if kept and kept.is_of(listed):
                    return kept.brief
                if budget_s <= 0:
                    return None
                kept = _read(listed, self.reading(listed.store), budget_s)
        except PsplatformError:
            return None
        with self._lock:
            self._briefs[listed.store] = kept
        return kept.brief

    def checkpoints(self, store: str) -> list[dict[str, Any]]:
        """Return the checkpoints that a store holds, as of a few seconds ago.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        with self._lock:
            kept = self._checkpoints.get(store)
        if kept is None or time.monotonic() > kept[0] + _CHECKPOINTS_EVERY_S:
            found = [one.to_plain() for one in held_checkpoints(store)]
            kept = time.monotonic(), found
            with self._lock:
                self._checkpoints[store] = kept
        return kept[1]

    def newest_checkpoint(self, store: str) -> dict[str, Any] | None:
        """Return the newest complete checkpoint that a store holds."""
        try:
            complete = [one for one in self.checkpoints(store) if one["state"] == "complete"]
        except StoreError:
            return None
        return complete[-1] if complete else None


def _with_others(found: list[Listed], others: Sequence[str], live: Live) -> list[Listed]:
    known = {os.path.realpath(one.store) for one in found}
    missing = {os.path.realpath(one): one for one in others if os.path.realpath(one) not in known}
    looked_at = [look_at(one, live) for one in missing.values()]
    readable = [one for one in looked_at if one.state is not State.FOREIGN]
    return newest_first([*found, *readable]) if readable else found


def _brief(description: Mapping[str, Any], models: Models, *, complete: bool) -> Brief:
    view, rows = models.view, models.convergence.rows
    curve = rows.held_out if len(rows.held_out) else rows.training
    known = [float(one) for one in curve.mean if one == one]  # noqa: PLR0124  NaN is not itself
    stride = max(1, -(-len(known) // SPARKS))
    bare = view.protection.unprotected
    shards = ", ".join(str(shard) for shard in bare)
    replicated = view.replication.get("mode", "none") != "none"
    return Brief(
        progress=progress_of(description, models),
        updates=view.updates,
        loss=view.loss,
        accuracy=view.accuracy,
        losses=tuple(known[::-stride][::-1]),
        updates_per_second=view.updates_per_second,
        protection=f"unprotected ({shards})" if bare else "in sync" if replicated else "none",
        complete=complete,
    )


def progress_of(description: Mapping[str, Any], models: Models) -> float | None:
    """Return the share of the way to the nearest of a run's ends; 1 where it is over."""
    view = models.view
    if view.outcome is not None and view.outcome.outcome not in ("failed", "stopped"):
        return 1.0
    stop = (description.get("job") or {}).get("stop") or {}
    samples = view.run.get("samples") or 0
    epochs = view.applied / view.blocks * view.run.get("batch_size", 0) / samples if samples else 0.0
    reached = {"updates": view.updates, "seconds": view.seconds, "epochs": epochs}
    shares = [reached[name] / stop[name] for name in reached if stop.get(name)]
    return min(1.0, max(shares)) if shares else None
