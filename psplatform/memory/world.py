"""What takes how long in the world that a run in memory lives in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from psplatform.core.protocol.names import Role

Deliver = Callable[[Role, Role, Any], list[float]]


class World(Protocol):
    """The durations of everything that is not decided by a role; all in seconds."""

    def compute_s(self, slot: int, sequence: int) -> float:
        """Return how long gradient `sequence` of `slot` takes."""

    def is_overwritten(self, member: str, sequence: int) -> bool:
        """Whether what `member` has just computed gradient `sequence` on was written over meanwhile."""

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Return the delays of the copies of a message that is sent now: one copy at least."""

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Return how long a gradient that is exposed now takes until the server of `shard` can reach it."""

    def again_s(self, sender: str, shard: int) -> float:
        """Return how long what a worker has sent before takes to a copy of `shard` that serves since then."""

    def part_s(self, member: str, aggregator: str, now: float) -> float:
        """Return how long a gradient that is sent now takes to the worker whose process sums it with others."""

    def gather_s(self, shard: int, gradients: int) -> float:
        """Return how long the server of `shard` takes to average so many gradients."""

    def evaluation_s(self) -> float:
        """Return how long an evaluation takes once its version is fetched."""

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Return until when a claim that the process makes now is not heard, and how long its answer takes then."""


@dataclass(frozen=True, slots=True)
class Ideal:
    """A world in which only computing takes time, and messages where a test says so.

    Parameters
    ----------
    compute
        Seconds that gradient `sequence` of `slot` takes.
    send
        Given sender, addressee and message, the delays of its copies.
    evaluate_s
        Seconds that an evaluation takes.
    latency_s
        Seconds that every message takes, where there is no `send`.
    """

    compute: Callable[[int, int], float]
    send: Deliver | None = None
    evaluate_s: float = 0.0
    latency_s: float = 0.0

    def compute_s(self, slot: int, sequence: int) -> float:
        """Ask the function."""
        return self.compute(slot, sequence)

    def is_overwritten(self, member: str, sequence: int) -> bool:
        """Parameters are copied to who computes."""
        return False

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Ask the function, if there is one."""
        return [self.latency_s] if self.send is None else self.send(sender, to, message)

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Gradients are at hand at once."""
        return 0.0

    def again_s(self, sender: str, shard: int) -> float:
        """Gradients are at hand at once."""
        return 0.0

    def part_s(self, member: str, aggregator: str, now: float) -> float:
        """Gradients are at hand at once."""
        return 0.0

    def gather_s(self, shard: int, gradients: int) -> float:
        """Averaging takes no time."""
        return 0.0

    def evaluation_s(self) -> float:
        """Return the same each time."""
        return self.evaluate_s

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Claims are answered at once."""
        return 0.0, 0.0
