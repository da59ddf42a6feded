"""The durations of everything in a simulated cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol.messages import GRADIENTS, STATE, Pulled, Transfer
from psplatform.core.protocol.names import RELAY, Role
from psplatform.jobs.stragglers import SlowServers
from psplatform.memory.roles.evaluation import EVALUATOR
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
    gradient_bytes
        The same of a gradient's part for it, as it is sent; none where it is as large as the content.
    slow_servers
        Answers to pulls that come late, as in a real run of the job.
    update_s
        Seconds a server takes to add up one gradient.
    state_vectors
        How many times the size of its content a shard's whole state has: the optimiser's part of it included.
    """

    run_times: RunTimes
    seed: int
    network: Network | None = None
    shard_bytes: tuple[float, ...] = ()
    slow_servers: SlowServers | None = None
    update_s: float = 0.0
    state_vectors: int = 1
    gradient_bytes: tuple[float, ...] | None = None
    _answers: dict[int, int] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _replicas: dict[str, int] = field(default_factory=dict)

    def compute_s(self, slot: int, sequence: int) -> float:
        """Return the time of that gradient."""
        return seconds_of(self.run_times, slot, sequence)

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Deliver once: content and what replicas are sent after the transfer, everything else after the latency."""
        if self.network is None and self.slow_servers is None:
            return _AT_ONCE
        if EVALUATOR in (sender.name, to.name):
            return _AT_ONCE
        by_server = isinstance(message, Pulled) and sender.kind == "copy"
        late = self._lateness(message.shard) if by_server else 0.0
        if self.network is None:
            return [late]
        if isinstance(message, Transfer):
            return [self._replicate_s(self.network, message, self._replica(to.name), now)]
        if not isinstance(message, Pulled):
            return [self.network.links.latency_s]
        source = self.host_of(sender.name) if sender.kind == "member" else self._server(message.shard)
        way = source, self.host_of(to.name), self.shard_bytes[message.shard]
        return [self.network.transfer(*way, now, late_s=late)]

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Return how long a gradient takes to the shard's server."""
        if self.network is None:
            return 0.0
        return self.network.transfer(self.host_of(member), self._server(shard), self._gradient_bytes[shard], now)

    def is_overwritten(self, member: str, sequence: int) -> bool:
        """Say no: parameters are copied to who computes."""
        return False

    def again_s(self, sender: str, shard: int) -> float:
        """Return nothing: servers that are lost are none of the conditions that are modelled here."""
        return 0.0

    def part_s(self, member: str, aggregator: str, now: float) -> float:
        """Return how long the whole gradient takes from host to host."""
        if self.network is None:
            return 0.0
        return self.network.transfer(self.host_of(member), self.host_of(aggregator), sum(self.shard_bytes), now)

    def gather_s(self, shard: int, gradients: int) -> float:
        """Return how long the server takes to add up so many gradients, one after the other."""
        return self.update_s * gradients

    def evaluation_s(self) -> float:
        """Return nothing: an evaluation tells the observer where training stands."""
        return 0.0

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Claims are answered at once."""
        return 0.0, 0.0

    def _replicate_s(self, network: Network, message: Transfer, replica: str, now: float) -> float:
        """Return how long it takes until a replica has what a transfer carries, or names at the workers."""
        if message.kind != GRADIENTS:
            vectors = self.state_vectors if message.kind == STATE else 1
            return network.transfer(
                self._server(message.shard), replica, vectors * self.shard_bytes[message.shard], now
            )
        size_bytes = self._gradient_bytes[message.shard]
        senders: dict[Any, str] = {}
        for one in message.contributions:  # of a bundle there is the sum, once, from where it was made
            senders[one.source] = one.bundle.aggregator if one.bundle is not None else one.member
        workers = [self.host_of(member) for member in senders.values()]
        told_s = network.links.latency_s
        fetched_s = [network.transfer(one, replica, size_bytes, now, late_s=told_s) for one in workers]
        return max(fetched_s, default=told_s)

    @property
    def _gradient_bytes(self) -> tuple[float, ...]:
        return self.shard_bytes if self.gradient_bytes is None else self.gradient_bytes

    def _lateness(self, shard: int) -> float:
        if self.slow_servers is None:
            return 0.0
        number = self._answers[shard] = self._answers.get(shard, -1) + 1
        return self.slow_servers.delay(self.seed, shard, number)

    def _server(self, shard: int) -> str:
        return self._host("server", shard)

    def _replica(self, name: str) -> str:
        """Return the host of a replica: as many share one as of servers, and none is a server's."""
        return self._host("replica", self._replicas.setdefault(name, len(self._replicas)))

    def host_of(self, member: str) -> str:
        """Return the host of a worker, or of its relay, as the network calls it."""
        name = member.removesuffix(RELAY)
        return self._host("worker", self._numbers.setdefault(name, len(self._numbers)))

    def gradients_to(self) -> list[tuple[str, float]]:
        """Return the host of each shard's server, with the bytes that a gradient has for it."""
        return [(self._server(shard), size_bytes) for shard, size_bytes in enumerate(self.shard_bytes)]

    def _host(self, kind: str, number: int) -> str:
        per_host = 1
        if self.network is not None:
            links = self.network.links
            per_host = links.workers_per_host if kind == "worker" else links.servers_per_host
        return f"{kind} {number // per_host}"
