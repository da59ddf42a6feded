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

from psplatform.client.listing import Listed, Live, State, list_runs, look_at, newest_first
from psplatform.dashboard.read_models.reading import Models, Reading
from psplatform.dashboard.settings import Settings
from psplatform.errors import PsplatformError, StoreError
from psplatform.replication.checkpoints import held_checkpoints

_log: Final = logging.getLogger(__name__)

MOST_READINGS: Final = 12
"""Runs whose models are kept; those that were not looked at for longest are read again when they are."""

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


class Library:
    """The runs of a folder, or the one of a store; may be used by several threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._listed: tuple[float, Live, list[Listed]] | None = None
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._briefs: dict[str, tuple[Any, Brief]] = {}
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
        with self._lock:
            if self._listed and self._listed[1] == live and time.monotonic() < self._listed[0] + _LIST_EVERY_S:
                return self._listed[2]
        if self._settings.store is not None:
            found = [look_at(self._settings.store, live)]
        else:
            found = list_runs(self._settings.folder, live)
        found = _with_others(found, others, live)
        with self._lock:
            self._listed = time.monotonic(), live, found
        return found

    def forget_list(self) -> None:
        """Look anew at the next question which runs there are."""
        with self._lock:
            self._listed = None

    def reading(self, store: str) -> Reading:
        """Return the models of the run in a store."""
        with self._lock:
            if store not in self._readings:
                self._readings[store] = Reading(store)
                while len(self._readings) > MOST_READINGS:
                    self._readings.popitem(last=False)
            self._readings.move_to_end(store)
            return self._readings[store]

    def brief(self, listed: Listed, budget_s: float) -> Brief | None:
        """Return what a table tells about a run, read on for so long at most; ``None`` where it cannot be read."""
        if listed.state is State.FOREIGN:
            return None
        # A recovered run ends more than once: what is kept is of one life and one end.
        life = listed.description.get("term", 1), listed.description.get("outcome")
        kept = self._briefs.get(listed.store)
        ended = listed.state is not State.LIVE
        if kept and kept[0] == life and kept[1].complete and ended:
            return kept[1]
        if budget_s <= 0:
            return kept[1] if kept else None
        reading = self.reading(listed.store)
        try:
            with understood(listed.store):
                complete = reading.refresh(budget_s).complete
                brief = reading.read(lambda models: _brief(listed.description, models, complete=complete))
        except PsplatformError:
            return None
        self._briefs[listed.store] = life, brief
        return brief

    def checkpoints(self, store: str) -> list[dict[str, Any]]:
        """Return the checkpoints that a store holds, as of a few seconds ago.

        Raises
        ------
        StoreError
            If the store cannot be read.
        """
        kept = self._checkpoints.get(store)
        if kept is None or time.monotonic() > kept[0] + _CHECKPOINTS_EVERY_S:
            found = [one.to_plain() for one in held_checkpoints(store)]
            self._checkpoints[store] = kept = time.monotonic(), found
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
