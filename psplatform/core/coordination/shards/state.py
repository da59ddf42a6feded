"""What the coordinator knows of the copies of each shard, and of what was lost with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from psplatform.core.protocol.messages import Applied, Label
from psplatform.core.protocol.names import first_replica, first_server

_STEPS_KEPT: Final = 1024
"""Norms of past steps kept per shard, to say how far away what was lost had led: more than a bound ever holds back."""


@dataclass(slots=True)
class ShardState:
    """The copies of one shard.

    Attributes
    ----------
    server, epoch
        Name of the copy that serves, and its fencing number.
    in_sync
        Replicas that may be promoted: the server holds itself to the bound for each.
    joining
        Replicas that are being brought in sync.
    excluded
        Replicas that the server was told not to wait for.
    retiring
        Whether the server's process is about to end in good order.
    promoting
        Whether `server` has not yet confirmed that it is the server.
    asleep
        Whether `server` is what the store keeps of it, of which a process is only being made: it cannot fall silent.
    resuming
        Whether the promoted server has not made a commit yet.
    passed
        Position of the last commit that was lost: the server passes over it, and says that it shows it.
    lost_at, reason, silence_s, lost_process
        Time at which the server before this one was found lost, why, how long after its last sign of life, and where
        it was.
    replaced
        Replicas that are lost, or the server that was, whose place the server waits for, until another is in sync.
    visible
        Highest position confirmed to be visible.
    steps
        By position, the norm of the step, as far back as it may matter.
    lost
        Positions that were lost with a server before this one, and that it passes over.
    losses
        Epoch and last version kept, for each time that positions were lost.
    known
        For each other promotion, its epoch and the last version decided then: a member answered a later one by the
        server before saw what nobody knows any more.
    """

    shard: int
    server: str
    epoch: int = 1
    in_sync: list[str] = field(default_factory=list)
    joining: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    promoting: bool = False
    retiring: bool = False
    asleep: bool = False
    resuming: bool = False
    passed: int = 0
    lost_at: float = 0.0
    reason: str = ""
    silence_s: float = 0.0
    lost_process: str = ""
    visible: int = 0
    steps: dict[int, float] = field(default_factory=dict)
    lost: list[range] = field(default_factory=list)
    losses: list[tuple[int, int]] = field(default_factory=list)
    known: list[tuple[int, int]] = field(default_factory=list)
    divergence: float = 0.0
    lag: int = 0
    replicated_bytes: int = 0

    @classmethod
    def first(cls, shard: int, replicas: int) -> ShardState:
        """Return the state in which a run begins: all copies alike."""
        return cls(shard, first_server(shard), in_sync=[first_replica(shard, number) for number in range(replicas)])

    @property
    def copies(self) -> list[str]:
        """The names of all copies."""
        return [self.server, *self.in_sync, *self.joining]

    def note(self, applied: Applied) -> None:
        """Keep what the server says of a position that it shows; one that is repeated late says how things stood."""
        if applied.position >= self.visible:
            self.visible = applied.position
            self.divergence, self.lag = applied.divergence, applied.lag
            self.replicated_bytes = applied.replicated_bytes
        self.steps[applied.position] = applied.step
        while len(self.steps) > _STEPS_KEPT:
            del self.steps[next(iter(self.steps))]

    def newly_lost(self, positions: range) -> list[int]:
        """Return those of `positions` that were not lost with an earlier server."""
        return [position for position in positions if not any(position in earlier for earlier in self.lost)]

    def way(self, positions: Sequence[int]) -> float | None:
        """Return how far the steps to `positions` led at most, or ``None`` if one of them is not known."""
        steps = [self.steps.get(position) for position in positions]
        known = [step for step in steps if step is not None]
        return sum(known, 0.0) if len(known) == len(steps) else None

    def rebased(self, version: int, epoch: int) -> int:
        """Return which version of what is left `version`, pulled under `epoch`, was computed on."""
        for since, kept in self.losses:
            if epoch < since:
                version = min(version, kept)
        for since, known in self.known:
            if epoch < since and version > known:
                version = known - 1  # -1 where not even the first commit is known: older than what the run began with
        return version


def rebased(label: Label, shards: list[ShardState]) -> Label:
    """Return a label that speaks of versions that still exist: what was computed on lost ones counts as older.

    So the lost updates count in its staleness, and a policy that wants the present version exactly does not get it.
    """
    if not any([one.losses or one.known for one in shards]):  # noqa: C419  at every gradient, and a generator costs more
        return label
    versions = tuple(
        one.rebased(version, epoch) for one, version, epoch in zip(shards, label.versions, label.epochs, strict=True)
    )
    return label if versions == label.versions else Label(versions, label.epochs)
