"""What the coordinator must know of a job."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from psplatform.core.parameters import parameter, settle
from psplatform.core.quality import Watch
from psplatform.core.rates import Schedule
from psplatform.errors import ConfigurationError


def _targets(text: str) -> dict[str, Any]:
    """Return the values in ``name=value,name=value``."""
    found: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        try:
            found[name] = float(value)
        except ValueError:
            separator = ""
        if not separator or not name:
            raise ConfigurationError(f'targets: write NAME=VALUE, not "{part}"', field="targets")
    return found


@dataclass(frozen=True, slots=True)
class Stop:
    """When a run ends: at the first of the given conditions.

    Attributes
    ----------
    updates
        Version at which no further commit is made.
    epochs
        Passes over the data, counted in samples of applied gradients.
    seconds
        Time since the first worker joined.
    target_loss, target_accuracy
        Held-out loss at most, or accuracy at least this; the version that reached it is the one that is kept.
    targets
        The same for any of the job's metrics by name; at least, or at most where lower values are better.
    patience
        Evaluations in a row, none of which finds the metric that the job watches better than before.
    min_delta
        By how much it must be better for that.
    """

    updates: int | None = parameter(None, minimum=1, help="stop at this version")
    epochs: float | None = parameter(None, above=0, finite=True, help="stop after so many passes over the data")
    seconds: float | None = parameter(
        None, above=0, finite=True, help="stop after so many seconds, those before a recovery included"
    )
    target_loss: float | None = parameter(None, finite=True, help="stop when the evaluated loss is at most this")
    target_accuracy: float | None = parameter(
        None, above=0, maximum=1, finite=True, help="stop when the evaluated accuracy is at least this"
    )
    targets: dict[str, float] | None = parameter(
        None, read=_targets, help="stop when one of these metrics is as good as this, such as f1=0.9"
    )
    patience: int | None = parameter(
        None, minimum=1, help="stop after so many evaluations in a row without an improvement of what is watched"
    )
    min_delta: float = parameter(0.0, minimum=0, finite=True, help="least change that patience takes for improvement")

    def __post_init__(self) -> None:
        """Refuse values that could never end a run, or end it before it began."""
        if isinstance(self.updates, float) and self.updates.is_integer():
            object.__setattr__(self, "updates", int(self.updates))
        settle(self, "stop.")
        for name, value in (self.targets or {}).items():
            if not math.isfinite(value):
                text = f"stop.targets: {name} must be a finite number, not {value!r}"
                raise ConfigurationError(text, field="stop.targets")

    @property
    def needs_evaluation(self) -> bool:
        """Whether a condition speaks of held-out data."""
        return bool(self.targets) or any(
            one is not None for one in (self.target_loss, self.target_accuracy, self.patience)
        )

    @property
    def ends(self) -> bool:
        """Whether any condition is given."""
        return self.needs_evaluation or any(one is not None for one in (self.updates, self.epochs, self.seconds))

    def reached(
        self,
        loss: float | None,
        accuracy: float | None,
        values: Mapping[str, float] | None = None,
        lower: Collection[str] = (),
    ) -> str | None:
        """Return in words which target this evaluation reached, or ``None``.

        Parameters
        ----------
        values
            All that was measured, by name.
        lower
            The names of what is better when it is lower.
        """
        if self.target_accuracy is not None and accuracy is not None and accuracy >= self.target_accuracy:
            return f"accuracy {accuracy:.4f} >= {self.target_accuracy:g}"
        if self.target_loss is not None and loss is not None and loss <= self.target_loss:
            return f"loss {loss:.4f} <= {self.target_loss:g}"
        for name, target in (self.targets or {}).items():
            value = (values or {}).get(name)
            if value is not None and (value <= target if name in lower else value >= target):
                return f"{name} {value:.4f} {'<=' if name in lower else '>='} {target:g}"
        return None


@dataclass(frozen=True, slots=True)
class Protection:
    """How servers are protected against their loss.

    Attributes
    ----------
    replicas
        Copies of each shard beside its server.
    bound, unit
        Furthest that a replica may be behind, for the log: ``norm`` of the parameters of the whole model, or
        ``updates``.
    shard_bound
        The same for one shard.
    pause
        Whether a server that has lost its last replica, or was it, waits at the bound until it has another.
    cold
        Whether replicas are kept in the store: nobody is there to be watched until one is promoted.
    from_workers
        Whether replicas take gradients from the workers instead of from their server.
    alone
        Whether a coordinator that is cut off from replicas and scheduler lets servers go on without a replica.
    """

    replicas: int = 1
    bound: float = 8.0
    unit: str = "updates"
    shard_bound: float = 8.0
    pause: bool = False
    cold: bool = False
    from_workers: bool = False
    alone: bool = False

    @property
    def sends_updates(self) -> bool:
        """Whether servers send their replicas each update."""
        return not self.from_workers and self.bound == 0

    @property
    def sends_states(self) -> bool:
        """Whether servers send their replicas whole states, each instead of many updates."""
        return not self.from_workers and self.bound > 0


@dataclass(frozen=True, slots=True)
class Cuts:
    """When checkpoints are cut: after so many updates, after so many seconds, or whichever comes first.

    Attributes
    ----------
    limit_s
        Seconds after which one that is not complete is given up.
    ends
        Whether the first and the last version of a run are cut as well.
    """

    every_updates: int | None = None
    every_seconds: float | None = None
    limit_s: float = 600.0
    ends: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """The part of a job that the coordinator acts on.

    Attributes
    ----------
    workers, max_workers
        The n of every rule, and the most slots there may be (``None``: no limit).
    shards
        Number of shards.
    samples, batch_size
        Size of the training data and of a worker's batch.
    deal_epochs
        Whether batches are dealt epoch by epoch (`psplatform.core.coordination.order.epochs`); else drawn with
        replacement.
    tries
        Gradients of a batch that may fail to be finite before it is given up, where batches are dealt; and the fewest
        in a row from which it is concluded that the model has diverged.
    ends_at_bad_batch
        Whether the run ends when a batch is given up, instead of going on without it.
    clip_norm
        Largest Euclidean norm of a commit's mean gradient, or ``None``.  Where a policy decides block by block, a
        commit is a block's: the limit holds for each by itself, the whole gradient may be sqrt(blocks) times longer.
    evaluate_every
        Updates between evaluations, or ``None`` for the last version only.
    evaluates
        Whether the task has held-out data.
    watch
        What evaluated versions are compared by.
    absence_limit_s
        Seconds without any live worker after which the run gives up.
    finish_limit_s
        Seconds that the last commits, the last evaluation and saving the model may take.
    protection
        How servers are protected, or ``None`` where the loss of one ends the run.
    cuts
        When checkpoints are made, or ``None`` for never.
    """

    run: str
    workers: int
    shards: int
    samples: int
    batch_size: int
    stop: Stop
    schedule: Schedule
    max_workers: int | None = None
    deal_epochs: bool = False
    tries: int = 1
    ends_at_bad_batch: bool = False
    clip_norm: float | None = None
    evaluate_every: int | None = None
    evaluates: bool = False
    watch: Watch = field(default_factory=Watch)
    absence_limit_s: float = 60.0
    finish_limit_s: float = 120.0
    protection: Protection | None = None
    cuts: Cuts | None = None

    @property
    def batches_per_epoch(self) -> int:
        """Batches per epoch; its batches have `batch_size` samples or fewer, all nearly alike."""
        return math.ceil(self.samples / self.batch_size)

    @property
    def from_workers(self) -> bool:
        """Whether replicas take gradients from the workers."""
        return self.protection is not None and self.protection.from_workers
