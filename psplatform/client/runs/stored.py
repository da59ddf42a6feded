"""A run as its store tells of it, where no coordinator does."""

from __future__ import annotations

import contextlib
from typing import Any

from psplatform.errors import ClusterError, PsplatformError, StoreError, from_plain
from psplatform.replication.stores.store import describe_run
from psplatform.telemetry.follow import LiveRun


class StoredRun:
    """What the store of a run says of it; `run` is its id, and what the store says of another run is not told."""

    def __init__(self, run: str, store: str) -> None:
        self._run = run
        self._store = store
        self._live = LiveRun(store)

    def is_over(self) -> bool:
        """Whether the store says how the run has ended: that is written last, when everything else is."""
        try:
            description = describe_run(self._store)
        except StoreError:
            return False  # it may be out of this program's reach
        return description.get("run") == self._run and "outcome" in description

    def flaw(self) -> str:
        """Return what is to be said where the store is another run's by now, or ``""``."""
        with contextlib.suppress(StoreError):
            other = describe_run(self._store).get("run")
            if other not in (None, self._run):
                held = f"{self._store} now holds run {other}"
                return f"{held}; of run {self._run}, whose store was removed, nothing is kept"
        return ""

    def status(self, *, gone: bool, why: str = "", trouble: str = "") -> dict[str, Any]:
        """Return how the run stands, as far as its log was written.

        Parameters
        ----------
        gone
            Whether no coordinator is left: a run without an end has failed then.
        why
            What is known of that, in words.
        trouble
            What is to be said of the coordinator.
        """
        if flaw := self.flaw():
            failure: PsplatformError | None = StoreError(f"{flaw}: start it again in another store", store=self._store)
            summary = self._live.view.to_summary()
            phase = "over" if gone else "unknown"
            return {"phase": phase, "step": "", "summary": summary, "failure": failure, "trouble": trouble or flaw}
        self._live.refresh()
        view = self._live.view
        failure = None
        if view.outcome is not None and view.outcome.outcome == "failed":
            described = describe_run(self._store).get("failure")
            failure = from_plain(described) if described else ClusterError(view.outcome.detail)
        elif view.outcome is None and gone:
            failure = ClusterError(
                f"{why}; its log ends at version {view.updates}, and "
                f"`psplatform recover {self._store}` goes on from its newest checkpoint, if it has one"
            )
        phase = "over" if view.outcome is not None or gone else "unknown"
        return {"phase": phase, "step": "", "summary": view.to_summary(), "failure": failure, "trouble": trouble}
