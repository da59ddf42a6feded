"""The durations of everything in a trial, and what its faults do to messages.

Everything is drawn from the trial's seed in the order in which it is asked for, so that a trial is the same each time.
A message that a partition holds back arrives when it heals: its sender repeats it until it is heard.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from psplatform.core.protocol.names import Role
from psplatform.simulation.faults.schedules.trial import Noise

_PACES: Final = (0.5, 0.9, 1.0, 1.1, 1.3, 3.0)  # seconds of a gradient
_GATHERING: Final = (0.02, 0.02, 0.4)  # most seconds in which gradients are averaged, or a transfer is loaded

_SENDING: Final = (0.0, 0.3, 3.0)  # most seconds in which a gradient is sent, where transfers are planned

_GRANTS: Final = "grants claims"


@dataclass(frozen=True, slots=True)
class Partition:
    """Messages between two sets of processes are held back until a time; an empty second set is everybody else."""

    since: float
    until: float
    side: frozenset[str]
    others: frozenset[str]
    way: str

    def holds(self, sender: str, to: str) -> bool:
        """Whether it holds back what `sender` sends `to`."""
        out = sender in self.side and self._is_other(to)
        into = to in self.side and self._is_other(sender)
        return (out and self.way != "in") or (into and self.way != "out")

    def _is_other(self, process: str) -> bool:
        return process not in self.side and (not self.others or process in self.others)


@dataclass(frozen=True, slots=True)
class BadLink:
    """What a process sends and receives is late, out of order or doubled until a time."""

    until: float
    process: str
    kind: str
    most_s: float


class TrialWorld:
    """`psplatform.memory.world.World` for trials.

    Parameters
    ----------
    noise
        What happens to every message.
    sends
        Whether gradients take a while to their servers.
    again_s
        Most seconds that they take to a server that was promoted since they were sent.
    overwritten
        Share of the gradients whose parameters are written over while they are computed.

    Attributes
    ----------
    process_of, server_of
        Where a role lives, and who serves a shard; set once the run exists.
    """

    def __init__(
        self, seed: int, noise: Noise, *, sends: bool = False, again_s: float = 0.0, overwritten: float = 0.0
    ) -> None:
        self.process_of: Callable[[Role], str] = lambda role: role.name
        self.server_of: Callable[[int], str] = str
        self._random = random.Random(f"world {seed}")
        self._seed = seed
        self._noise = noise
        self._gather_s = self._random.choice(_GATHERING)
        # A stream of its own: whatever else a seed stands for stays as it was before gradients could take a while.
        self._sending = random.Random(f"sending {seed}")
        self._send_s = self._sending.choice(_SENDING) if sends else 0.0
        self._again, self._again_s = random.Random(f"again {seed}"), again_s
        self._overwriting, self._overwritten = random.Random(f"overwritten {seed}"), overwritten
        self._partitions: list[Partition] = []
        self._bad: list[BadLink] = []
        self._unclaimable: list[Partition] = []

    def split(self, partition: Partition) -> None:
        """Hold back what crosses the partition."""
        self._partitions.append(partition)

    def spoil(self, link: BadLink) -> None:
        """Make a process's messages late, out of order or doubled."""
        self._bad.append(link)

    def split_from_grants(self, process: str, since: float, until: float, way: str) -> None:
        """Hold back what crosses between the process and the one that grants claims."""
        self._unclaimable.append(Partition(since, until, frozenset({process}), frozenset({_GRANTS}), way))

    def was_heard(self, process: str, since: float, until: float) -> bool:
        """Whether the process and the one that grants claims could hear each other at any time in between."""
        cuts = sorted((one.since, one.until) for one in self._unclaimable if process in one.side)
        for begins, ends in cuts:
            if begins <= since < ends:
                since = ends
        return since <= until

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Return until when the process is not heard, or its answer is held back."""
        held = [one for one in self._unclaimable if now < one.until]
        unheard = [one.until - now for one in held if one.holds(process, _GRANTS)]
        unanswered = [one.until - now for one in held if one.holds(_GRANTS, process)]
        return max(unheard, default=0.0), max(unanswered, default=0.0)

    def compute_s(self, slot: int, sequence: int) -> float:
        """Return a time that depends on the gradient alone."""
        return random.Random(f"{self._seed} {slot} {sequence}").choice(_PACES)

    def is_overwritten(self, member: str, sequence: int) -> bool:
        """Say so by chance, where parameters are read where servers write them."""
        return self._overwritten > 0 and self._overwriting.random() < self._overwritten

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Deliver once or twice, after the latency, the noise and whatever the faults add."""
        noise = self._noise
        delays = [noise.latency_s]
        if noise.jitter_s or noise.twice:
            delays[0] += self._random.choice((0.0, 0.0, self._random.random())) * noise.jitter_s
            if self._random.random() < noise.twice:
                delays.append(noise.latency_s + self._random.random() * noise.jitter_s)
        if self._partitions or self._bad:
            return self._troubled(self.process_of(sender), self.process_of(to), delays, now)
        return delays

    def _troubled(self, sender: str, to: str, delays: list[float], now: float) -> list[float]:
        if sender == to:
            return delays
        for bad in self._bad:
            if now < bad.until and bad.process in (sender, to):
                delays = self._spoiled(bad, delays)
        held = [one.until - now for one in self._partitions if now < one.until and one.holds(sender, to)]
        return [delay + max(held, default=0.0) for delay in delays]

    def _spoiled(self, bad: BadLink, delays: list[float]) -> list[float]:
        if bad.kind == "delay":
            return [delay + bad.most_s for delay in delays]
        if bad.kind == "reorder":
            return [delay + self._random.random() * bad.most_s for delay in delays]
        return [*delays, delays[-1] + self._random.random() * bad.most_s]

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Return the time to the server, the time that it is cut off included."""
        taken = self._sending.random() * self._send_s if self._send_s else 0.0
        (delay,) = self._troubled(member, self.process_of(Role.copy(self.server_of(shard))), [taken], now)[:1]
        return delay

    def again_s(self, sender: str, shard: int) -> float:
        """Return a time by chance, where gradients are sent again."""
        return self._again.random() * self._again_s if self._again_s else 0.0

    def part_s(self, member: str, aggregator: str, now: float) -> float:
        """Return the time to the process that sums it, the time that it is cut off included."""
        taken = self._sending.random() * self._send_s if self._send_s else 0.0
        (delay,) = self._troubled(member, self.process_of(Role.member(aggregator)), [taken], now)[:1]
        return delay

    def gather_s(self, shard: int, gradients: int) -> float:
        """Return a short time, by chance."""
        return self._random.random() * self._gather_s

    def evaluation_s(self) -> float:
        """Return a short time."""
        return 0.05
