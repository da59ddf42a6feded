"""The part of a run's picture that is about checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import Series


class Checkpoint(NamedTuple):
    """A checkpoint that is complete: at which version it was cut, what writing it took, and how large it is."""

    at: float
    number: int
    version: int
    seconds: float
    bytes: int


@dataclass(slots=True)
class CheckpointsView:
    """What became of a run's checkpoints.

    Attributes
    ----------
    complete
        Those that can be recovered from, or could before newer ones took their place.
    failures, abandoned
        How many storage refused, and how many were given up for another reason, a failover in their middle for example.
    """

    complete: Series[Checkpoint] = field(default_factory=Series)
    failures: int = 0
    abandoned: int = 0

    @property
    def newest(self) -> Checkpoint | None:
        """The newest complete one, if there is any."""
        return self.complete.items[-1] if len(self.complete) else None

    def add(self, record: Record) -> str | None:
        """Fold a ``checkpoint`` record; return what a person should know of it, if anything."""
        number, version, event, reason = (record[name] for name in ("number", "version", "event", "reason"))
        found = Checkpoint(record["at"], number, version, record["seconds"], record["bytes"])
        if event == "complete":
            self.complete.append(found)
        elif event == "failed":
            self.failures += 1
            return f"checkpoint {number} of version {version} failed: {reason}"
        elif event == "abandoned":
            self.abandoned += 1
        return None

    def to_plain(self) -> dict[str, Any]:
        """Return what the summary tells."""
        return {
            "checkpoints": [one._asdict() for one in self.complete.items],
            "checkpoints_complete": len(self.complete),
            "checkpoint_failures": self.failures,
            "checkpoints_abandoned": self.abandoned,
        }
