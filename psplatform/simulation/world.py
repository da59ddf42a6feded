"""The durations of everything in a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol.effects import Role
from psplatform.core.protocol.messages import Pulled
from psplatform.jobs.stragglers import SlowServers
from psplatform.memory.evaluation import EVALUATOR
from psplatform.simulation.network import Network
from psplatform.simulation.run_times import RunTimes, seconds_of

_AT_ONCE: Final = [0.0]


@dataclass
class SimulatedWorld:
    """Run times, a network, servers that take their time, and an evaluator that takes none.

    Parameters
    ----------
    network
        ``None`` where nothing but computing takes time.
    shard_bytes
        Size of each shard's content, by shard.
    slow_servers
        Answers to pulls that come late, as in a real run of the job.
    update_s
        Seconds a server takes to add up one gradient.
    """

    run_times: RunTimes
    seed: int
    network: Network | None = None
    shard_bytes: tuple[float, ...] = ()
    slow_servers: SlowServers | None = None
    update_s: float = 0.0
    _answers: dict[int, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def compute_s(self, slot: int, sequence: int) -> float:
        """Return the time of that gradient."""
        return seconds_of(self.run_times, slot, sequence)

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Deliver once: content after its transfer, everything else after the latency."""
        if self.network is None and self.slow_servers is None:
            return _AT_ONCE
        if EVALUATOR in (sender.name, to.name):
            return _AT_ONCE
        late = self._lateness(message.shard) if isinstance(message, Pulled) else 0.0
        if self.network is None:
            return [late]
        if not isinstance(message, Pulled):
            return [self.network.links.latency_s]
        way = self._server(message.shard), self._worker(to.name), self.shard_bytes[message.shard]
        return [self.network.transfer(*way, now, late_s=late)]

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Return how long a gradient takes to the shard's server."""
        if self.network is None:
            return 0.0
        return self.network.transfer(self._worker(member), self._server(shard), self.shard_bytes[shard], now)

    def gather_s(self, shard: int, gradients: int) -> float:
        """Return how long the server takes to add up so many gradients, one after the other."""
        return self.update_s * gradients

    def evaluation_s(self) -> float:
        """Return nothing: an evaluation tells the observer where training stands."""
        return 0.0

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Claims are answered at once."""
        return 0.0, 0.0

    def _lateness(self, shard: int) -> float:
        if self.slow_servers is None:
            return 0.0
        number = self._answers[shard] = self._answers.get(shard, -1) + 1
        return self.slow_servers.delay(self.seed, shard, number)

    def _server(self, shard: int) -> str:
        per_host = self.network.links.servers_per_host if self.network else 1
        return f"server {shard // per_host}"

    def _worker(self, member: str) -> str:
        number = self._numbers.setdefault(member, len(self._numbers))
        per_host = self.network.links.workers_per_host if self.network else 1
        return f"worker {number // per_host}"
