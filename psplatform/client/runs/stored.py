"""A run as its store tells of it, where no coordinator does."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from psplatform.errors import ClusterError, PsplatformError, StoreError, from_plain
from psplatform.replication.checkpoints.retention import held_checkpoints
from psplatform.replication.stores.store import describe_run
from psplatform.telemetry.follow import LiveRun

_TOLD: Final = ("run", "workload", "policy", "policy_parameters", "workers", "shards", "seed", "store")
"""What the description says of a run as the first record of its log does."""


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
            taken = StoreError(f"{flaw}: start it again in another store", store=self._store)
            summary = self._live.view.to_summary()
            phase = "over" if gone else "unknown"
            return {"phase": phase, "step": "", "summary": summary, "failure": taken, "trouble": trouble or flaw}
        over = self.is_over()  # before its log is read, which is whole by then
        lacking = self._read(over=over)
        view = self._live.view
        failure: PsplatformError | None = None
        if lacking and view.outcome is None and over:
            summary = self._described(lacking)
            if summary["outcome"] == "failed":
                failure = self._failure(lacking)
            return {"phase": "over", "step": "", "summary": summary, "failure": failure, "trouble": trouble}
        if view.outcome is not None and view.outcome.outcome == "failed":
            failure = self._failure(view.outcome.detail)
        elif view.outcome is None and gone:
            failure = ClusterError(
                f"{why}; its log ends at version {view.updates}, and "
                f"`psplatform recover {self._store}` goes on from its newest checkpoint, if it has one"
            )
        phase = "over" if view.outcome is not None or gone else "unknown"
        return {"phase": phase, "step": "", "summary": self._summary(lacking), "failure": failure, "trouble": trouble}

    def _failure(self, otherwise: str) -> PsplatformError:
        description = describe_run(self._store)
        described = description.get("failure")
        return from_plain(described) if described else ClusterError(str(description.get("error") or otherwise))

    def _read(self, *, over: bool) -> str:
        """Read on in the log; return in one sentence what it lacks, of a run that is over, or ``""``."""
        try:
            self._live.refresh()
        except StoreError as error:
            if not over:
                raise
            return f"the log can be read up to version {self._live.view.updates} only: {error}"
        if skipped := self._live.skipped:
            named = ", ".join(f"log/{name}" for name in skipped)
            return f"the log lacks what was in {named}, which is damaged or missing; the run has gone on since"
        if not self._live.view.run:
            return "the log is missing; this is what the description and the checkpoints of the store say"
        return "the log lacks its last records" if self._live.view.outcome is None else ""

    def _summary(self, lacking: str) -> dict[str, Any]:
        summary = self._live.view.to_summary()
        if lacking and "run" in summary and (self._live.skipped or summary["outcome"] is not None):
            summary["incidents"] = [*summary["incidents"], {"at": summary["seconds"], "kind": "log", "text": lacking}]
        return summary

    def _described(self, lacking: str) -> dict[str, Any]:
        """Return the summary of a run that is over and whose log does not say so, from the rest of its store."""
        description, view = describe_run(self._store), self._live.view
        told: dict[str, Any] = {name: description[name] for name in _TOLD if name in description}
        summary: dict[str, Any] = {
            **told,
            **view.to_summary(),
            "outcome": description["outcome"],
            "detail": "as its zarr.json says",
        }
        versions = [one.summary.version for one in held_checkpoints(self._store) if one.summary is not None]
        summary["updates"] = max([summary["updates"], *versions])
        summary["incidents"] = [*summary["incidents"], {"at": summary["seconds"], "kind": "log", "text": lacking}]
        return summary
