"""How long gradients take: a function of slot and iteration, drawn from the seed, whatever the policy does.

Iterations count from 0, as in a trace.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.random import Generator, Philox, SeedSequence
from numpy.typing import NDArray

from psplatform.core.parameters import parameter, settle
from psplatform.jobs.distributions import Distribution
from psplatform.jobs.stragglers import Stragglers, Trace

# Independent streams of random numbers for one and the same seed.
_WORKERS: Final = 11
_NODES: Final = 12

_CHUNK: Final = 256
"""Values drawn at once: a generator for each of ten thousand slots is too dear for a value at a time."""

_LEAST: Final = 0.1
"""A time drawn from a normal is at least this share of the mean: it has mass below zero, times have not."""


class RunTimes(Protocol):
    """Seconds that gradients take."""

    def seconds(self, slot: int, iteration: int) -> float:
        """Return how long the `iteration`-th gradient of `slot` takes."""


def seconds_of(run_times: RunTimes, slot: int, sequence: int) -> float:
    """Return how long gradient `sequence` of `slot` takes: sequences count from 1, iterations from 0."""
    return run_times.seconds(slot, sequence - 1)


class Drawn:
    """Numbers from one source in the order in which it gives them, as many as have been asked for: 8 bytes each.

    Parameters
    ----------
    draw
        Takes the source and a count; returns as many numbers, the next ones.
    """

    __slots__ = ("_draw", "_numbers", "_source")

    def __init__(self, source: Generator, draw: Callable[[Generator, int], NDArray[np.float64]]) -> None:
        self._source, self._draw = source, draw
        self._numbers = array("d")

    def at(self, index: int) -> float:
        """Return number `index`, counted from 0."""
        numbers = self._numbers
        while index >= len(numbers):
            numbers.frombytes(self._draw(self._source, _CHUNK).astype(np.float64, copy=False).tobytes())
        return numbers[index]


@dataclass
class Independent:
    """Every gradient draws its time from `distribution`, independently of all others."""

    distribution: Distribution
    seed: int
    _drawn: dict[int, Drawn] = field(default_factory=dict)

    def seconds(self, slot: int, iteration: int) -> float:
        """Return the draw of that slot and iteration."""
        drawn = self._drawn.get(slot)
        if drawn is None:
            drawn = self._drawn[slot] = Drawn(_generator(self.seed, _WORKERS, slot), self.distribution.samples)
        return drawn.at(iteration)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Workers on the same node are slow together, and a node that is slow stays so for a while.

    A time is ``mean + sd * (sqrt(share) * node + sqrt(1 - share) * worker)``; ``node`` and ``worker`` are standard
    normal, ``node`` is common to the slots of a node and first-order autoregressive over iterations.
    """

    size: int = parameter(minimum=1, help="slots per node")
    average: float = parameter(above=0, finite=True, alias="mean", help="mean, in seconds")
    sd: float = parameter(minimum=0, finite=True, help="standard deviation, in seconds")
    share: float = parameter(minimum=0, maximum=1, help="part of the variance that a node's slots have in common")
    memory: float = parameter(
        minimum=0, maximum=0.999999, help="correlation of a node's part with that of the next iteration"
    )

    def __post_init__(self) -> None:
        settle(self, "nodes: ")


@dataclass
class Correlated:
    """The times of `Nodes`."""

    nodes: Nodes
    seed: int
    _by_worker: dict[int, Drawn] = field(default_factory=dict)
    _by_node: dict[int, Drawn] = field(default_factory=dict)

    def seconds(self, slot: int, iteration: int) -> float:
        """Return the time of that slot and iteration, never below a tenth of the mean."""
        nodes = self.nodes
        worker, node = self._of_worker(slot, iteration), self._of_node(slot // nodes.size, iteration)
        common, own = math.sqrt(nodes.share) * node, math.sqrt(1 - nodes.share) * worker
        return max(nodes.average + nodes.sd * (common + own), _LEAST * nodes.average)

    def _of_worker(self, slot: int, iteration: int) -> float:
        drawn = self._by_worker.get(slot)
        if drawn is None:
            drawn = self._by_worker[slot] = Drawn(_generator(self.seed, _WORKERS, slot), Generator.standard_normal)
        return drawn.at(iteration)

    def _of_node(self, node: int, iteration: int) -> float:
        drawn = self._by_node.get(node)
        if drawn is None:
            course = _Autoregression(self.nodes.memory)
            drawn = self._by_node[node] = Drawn(_generator(self.seed, _NODES, node), course.following)
        return drawn.at(iteration)


@dataclass(slots=True)
class _Autoregression:
    """Standard normals of which each remembers the one before: ``x = memory * x + sqrt(1 - memory^2) * shock``."""

    memory: float
    newest: float | None = None

    def following(self, source: Generator, count: int) -> NDArray[np.float64]:
        """Return the next `count` of them."""
        found = source.standard_normal(count)
        fresh = math.sqrt(1 - self.memory * self.memory)
        for index, shock in enumerate(found.tolist()):
            self.newest = shock if self.newest is None else self.memory * self.newest + fresh * shock
            found[index] = self.newest
        return found


@dataclass(frozen=True, slots=True)
class Traced:
    """The times of a trace by slot and iteration; a run longer than the trace begins it again.

    Slots beyond the trace, of workers that join later, take its slots in turn.
    """

    trace: Trace

    def seconds(self, slot: int, iteration: int) -> float:
        """Return the time of that slot and iteration."""
        row = self.trace[slot % len(self.trace)]
        return row[iteration % len(row)]


@dataclass(frozen=True, slots=True)
class Slowed:
    """Times of `base` with the slowness that a job adds to real workers: a target time, factors, chance.

    Both take the very same draws, so a simulated straggler is slow in the iterations in which the real one is.
    """

    base: RunTimes
    stragglers: Stragglers
    seed: int

    def seconds(self, slot: int, iteration: int) -> float:
        """Return the time a gradient takes: its own, or the longer one that is wanted of it."""
        own = self.base.seconds(slot, iteration)
        target = self.stragglers.iteration_seconds(self.seed, slot, iteration)
        factor = self.stragglers.slow_down(self.seed, slot, iteration)
        return max(own, factor * (own if target is None else target))


def _generator(seed: int, stream: int, place: int) -> Generator:
    return Generator(Philox(SeedSequence(seed, spawn_key=(stream, place))))
