"""All that is known about a run: what dashboard, command line and summary show."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from psplatform.core.reasons import NOT_SENT
from psplatform.telemetry.checkpoints import CheckpointsView
from psplatform.telemetry.measures import BadBatches, Delays, Drops, Point, Series, Tally, TimeSpent
from psplatform.telemetry.protection import Protection, allowance
from psplatform.telemetry.transfers import Transfers
from psplatform.telemetry.workers import WorkerView

INCIDENTS: Final = 256  # the newest ones; the log has them all


class Evaluation(NamedTuple):
    """Held-out loss and accuracy of a version, measured `at` seconds after the run's start."""

    at: float
    version: int
    loss: float | None
    accuracy: float | None


class Best(NamedTuple):
    """The best of the evaluated versions, by the metric that the job watches."""

    metric: str
    value: float
    version: int
    kept: bool


class Incident(NamedTuple):
    """Something a person may want to know; `kind` is that of the record: ``lost``, ``promoted``, ``note`` and so on."""

    at: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended; the fields are those of the ``finished`` record."""

    outcome: str
    detail: str
    version: int
    loss: float | None
    accuracy: float | None
    seconds: float


@dataclass(slots=True)
class Picture:
    """What is known so far; only `RunView.apply` changes it.

    Attributes
    ----------
    run
        Fields of the newest ``run`` record: run, workload, policy, workers, shards and so on.
    seconds
        Time of the newest record, in seconds since the run began or was recovered.
    updates, visible
        The version decided by the newest commit, and the newest one that workers may pull.
    commits, gradients, applied
        Commits decided, gradients computed, gradients that entered a commit; of commits and what is applied or dropped,
        each block counts where the policy decides block by block.
    decided, shown
        The same versions by block, where blocks have versions of their own.
    min_clock
        The slowest live worker's clock.
    loss
        Mean loss of the gradients in the newest commit.
    evaluation_loss, accuracy, best_accuracy
        Newest held-out loss and accuracy, and the best accuracy so far.
    metrics, best
        What else the newest evaluation measured, by name, and the best version so far.
    losses, staleness_series, rates
        Per commit: mean loss, mean staleness, factor on the learning rate.
    evaluations
        Held-out losses and accuracies.
    staleness, dropped, time, workers, incidents
        Delays applied, gradients not applied, where time went, the slots by number, and the newest incidents.
    bad_batches
        Batches that were given up, because none of their gradients was finite.
    commit_s, visible_s, abort_s
        Seconds a commit took to gather, to become visible, and an abort to take effect.
    protection
        Copies of the servers, how far they lag, and failovers.
    checkpoints
        Those that are complete, and how many failed.
    transfers
        What has come to the servers and what they have sent, where transfers are planned.
    outcome
        How the run ended, ``None`` while it is on.
    """

    run: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    updates: int = 0
    visible: int = 0
    commits: int = 0
    gradients: int = 0
    applied: int = 0
    decided: dict[int, int] = field(default_factory=dict)
    shown: dict[int, int] = field(default_factory=dict)
    min_clock: int = 0
    loss: float | None = None
    evaluation_loss: float | None = None
    accuracy: float | None = None
    best_accuracy: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    best: Best | None = None
    losses: Series[Point] = field(default_factory=Series)
    staleness_series: Series[Point] = field(default_factory=Series)
    rates: Series[Point] = field(default_factory=Series)
    evaluations: Series[Evaluation] = field(default_factory=Series)
    staleness: Delays = field(default_factory=Delays)
    dropped: Drops = field(default_factory=Drops)
    time: TimeSpent = field(default_factory=TimeSpent)
    workers: dict[int, WorkerView] = field(default_factory=dict)
    incidents: deque[Incident] = field(default_factory=lambda: deque(maxlen=INCIDENTS))
    bad_batches: BadBatches = field(default_factory=BadBatches)
    commit_s: Tally = field(default_factory=Tally)
    visible_s: Tally = field(default_factory=Tally)
    abort_s: Tally = field(default_factory=Tally)
    protection: Protection = field(default_factory=Protection)
    checkpoints: CheckpointsView = field(default_factory=CheckpointsView)
    transfers: Transfers = field(default_factory=Transfers)
    outcome: Outcome | None = None

    @property
    def replication(self) -> dict[str, Any]:
        """Plain form of the replication in force, empty before the run is described."""
        return dict(self.run.get("replication") or {})

    @property
    def divergence_bound(self) -> float | None:
        """What replicas may lack, in `divergence_unit`; ``None`` where there are none."""
        return allowance(self.replication)[0]

    @property
    def divergence_unit(self) -> str | None:
        """``norm`` or ``updates``; ``None`` where there are no replicas."""
        return allowance(self.replication)[1]

    @property
    def shards(self) -> int:
        """Number of shards, 0 before the run is described."""
        return int(self.run.get("shards", 0))

    @property
    def vector_bytes(self) -> float | None:
        """Bytes of a gradient, and of the parameters, where transfers are planned and the log says so."""
        found: float | None = (self.run.get("network") or {}).get("gradient_bytes")
        return found

    @property
    def from_version(self) -> int:
        """The version that the run began at: 0, or that of the checkpoint that it was recovered from."""
        return int(self.run.get("from_version", 0))

    @property
    def blocks(self) -> int:
        """Number of blocks that are decided about one by one; 1 where the model is decided about as a whole."""
        return max(len(self.decided), 1)

    @property
    def waiting_fraction(self) -> float:
        """Share of the workers' time spent waiting for a release."""
        return self.time.waiting_fraction

    @property
    def updates_per_second(self) -> float:
        """Updates per second since the first worker joined: since a recovery, and at the end over the whole run."""
        joined = min((worker.joined_at or 0.0 for worker in self.workers.values()), default=0.0)
        updates, seconds = self.updates - self.from_version, self.seconds - joined
        if self.outcome:  # whose seconds are those before a recovery as well
            updates, seconds = self.updates, self.outcome.seconds
        return updates / seconds if seconds > 0 else 0.0

    def to_summary(self) -> dict[str, Any]:
        """Return the object that ``train --json`` prints: plain values, numbers finite, ``None`` for unknown."""
        summary = {
            **self.run,
            "checkpoint_rule": self.run.get("checkpoints"),
            **self._progress(),
            **self.protection.to_plain(self.replication),
            **self.checkpoints.to_plain(),
            "staleness": self.staleness.to_plain(),
            "dropped": self.dropped.to_plain(),
            "bad_batches": self.bad_batches.to_plain(),
            "waiting_fraction": self.waiting_fraction,
            "abort_latency_s": self.abort_s.to_plain(),
            "slots": {slot: worker.to_plain() for slot, worker in sorted(self.workers.items())},
            "incidents": [incident._asdict() for incident in self.incidents],
            **self._network(),
        }
        return {name: _jsonable(value) for name, value in summary.items()}

    def _network(self) -> dict[str, Any]:
        """Return what planned transfers have led to, where transfers are planned."""
        if not self.run.get("network"):
            return {}
        delay = {"mean": self.staleness.mean, "p95": self.staleness.percentile(0.95), "max": self.staleness.max}
        unsent = self.dropped.by_reason[NOT_SENT]
        known = {name: value for name, value in self.run["network"].items() if name != "gradient_bytes"}
        moved = self.transfers.to_plain(self.vector_bytes)
        return {"network": {**known, **moved, "dropped_at_source": unsent, "delay": delay}}

    def _progress(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome.outcome if self.outcome else None,
            "detail": self.outcome.detail if self.outcome else "",
            "seconds": self.outcome.seconds if self.outcome else self.seconds,
            "updates": self.updates,
            "updates_per_second": self.updates_per_second,
            "commits": self.commits,
            "blocks": self.blocks,
            "gradients": self.gradients,
            "applied": self.applied,
            "loss": self.loss,
            "evaluation_loss": self.evaluation_loss,
            "accuracy": self.accuracy,
            "best_accuracy": self.best_accuracy,
            "metrics": dict(self.metrics),
            "best": self.best._asdict() if self.best else None,
        }


def _jsonable(value: object) -> object:
    # JSON has no NaN, no infinity, no numbers as keys and no tuples.
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
