"""The part of a run's picture that belongs to one slot."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import TimeSpent


@dataclass(slots=True)
class WorkerView:
    """A slot and the process in it.

    Attributes
    ----------
    status
        ``computing``, ``idle`` (waiting for a release) or ``lost``.
    process, incarnation
        Address of the newest process in the slot, and which one it is.
    joined_at, lost_at
        Seconds since the run's start when that process joined, and when it was lost, if it was.
    sequence, version, clock
        Of the iteration begun last: its number, the version it computes on, the worker's clock.
    gradients, applied, dropped, aborted
        Gradients computed, what became of them, and iterations interrupted; over all processes of the slot.
    loss
        Loss of the last gradient.
    """

    slot: int
    status: str = "idle"
    process: str = ""
    incarnation: int = 0
    joined_at: float | None = None
    lost_at: float | None = None
    sequence: int | None = None
    version: int | None = None
    clock: int = 0
    gradients: int = 0
    applied: int = 0
    dropped: int = 0
    aborted: int = 0
    loss: float | None = None
    time: TimeSpent = field(default_factory=TimeSpent)

    def join(self, record: Record) -> None:
        """Fold a ``joined`` record."""
        self.status = "idle"
        self.process, self.incarnation = record["process"], record["incarnation"]
        self.joined_at, self.lost_at = record["at"], None
        self.clock = record["clock"]

    def lose(self, record: Record) -> None:
        """Fold a ``lost`` record; the loss of a process that was already replaced changes nothing."""
        if record["incarnation"] >= self.incarnation:
            self.status = "lost"
            self.lost_at = record["at"]

    def leave(self, record: Record) -> None:
        """Fold a ``left`` record: the run ended, and the worker with it."""
        if record["incarnation"] >= self.incarnation:
            self.status = "left"

    def start(self, record: Record) -> None:
        """Fold a ``start`` record."""
        self.status = "computing"
        self.sequence, self.version, self.clock = record["sequence"], record["version"], record["clock"]

    def finish(self, record: Record) -> None:
        """Fold a ``gradient`` record."""
        self.rest()
        self.gradients += 1
        self.loss = record["loss"]
        self.time.add(record["compute_s"], record["pull_s"], record["push_s"], record["wait_s"])

    def rest(self) -> None:
        """No iteration is under way in the slot now."""
        if self.status == "computing":
            self.status = "idle"

    def to_plain(self) -> dict[str, Any]:
        """Return what the summary tells about the slot."""
        return {
            "status": self.status,
            "process": self.process,
            "incarnation": self.incarnation,
            "joined": self.joined_at,
            "lost": self.lost_at,
            "clock": self.clock,
            "gradients": self.gradients,
            "applied": self.applied,
            "dropped": self.dropped,
            "waiting_fraction": self.time.waiting_fraction,
        }
