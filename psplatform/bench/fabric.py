"""Seconds for as many updates as there are workers, where rates change: all-reduce beside asynchronous runs.

The setting of R. Viswanathan and A. Akella, "Network-accelerated Distributed Machine Learning Using MLfabric", 2020,
section 7: 30 workers on 15 hosts, gradients of 100 MB that take 0.1 s, interfaces of 10 Gb/s.  Kinds of stragglers (C1
to C3: how many gradients of each worker are how much slower by chance) and of networks (N1 to N3: what each direction
of an interface can carry, drawn anew every five seconds) have the paper's names.

Everything is simulated.  The server's interface changes as all others do, a worker pulls when its gradient has arrived,
and replicas take no part.  Where transfers are `planned`, each gradient is sent straight to the server, and some are
dropped where they lie; where they are `summed`, every host may sum gradients on their way and hand parameters on, and
the planner knows all rates as monitors tell them 0.2 s late; `unmonitored`, it learns them from transfers that have
ended.  A ring, of which each interface carries the model twice a round, is faster than all of them.

All-reduce is not charged for latencies (0.1 ms a message) nor for the first parameters, which asynchronous runs are.
The tree is binary and passes the whole model from level to level: libraries cut it into parts that follow each other.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psplatform.bench.scheduler import NETWORKS
from psplatform.core import reasons
from psplatform.core.plan import Plan, Stop
from psplatform.core.transfers import Fabric
from psplatform.jobs.schedules import Constant
from psplatform.network.estimates import Estimates
from psplatform.network.planner import FabricPlanner
from psplatform.network.rates import BYTES_PER_GIGABIT
from psplatform.network.state import NetworkState
from psplatform.policies.registry import make_policy
from psplatform.simulation.collectives import ring_all_reduce, tree_all_reduce
from psplatform.simulation.conditions import parse_run_times
from psplatform.simulation.driver import Simulated, run_world
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.monitoring import Reports
from psplatform.simulation.network import Links, Network
from psplatform.simulation.run_times import RunTimes, seconds_of
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.world import SimulatedWorld

Row = dict[str, Any]
AllReduce = Callable[[NetworkState, Sequence[str], float, float], float]

WORKERS: Final = 30
MEMBERS: Final = tuple(f"w{number}" for number in range(WORKERS))
"""Their names in a simulated run."""

PER_HOST: Final = 2
MODEL_BYTES: Final = 100e6
DELAY_BOUND: Final = 30
HOSTS: Final = WORKERS // PER_HOST

COMPUTE: Final = {
    "C1": "constant:seconds=0.1;slow:chance=0.1,factor=2",
    "C2": "constant:seconds=0.1;slow:chance=0.1,factor=4",
    "C3": "constant:seconds=0.1;slow:chance=0.04,factor=2",
}
_EVERY_S: Final = 5.0
_LATENCY_S: Final = 1e-4

ALL_REDUCE: Final[dict[str, AllReduce]] = {"ring": ring_all_reduce, "tree": tree_all_reduce}
"""Hosts sum what is theirs before; all wait for the slowest."""

_TICK_S: Final = 0.1
_LAG_S: Final = 0.2
"""Seconds by which monitors are late, as the paper has it."""

_FASTEST: Final = 10.0 * BYTES_PER_GIGABIT
_FORGET_S: Final = _EVERY_S
"""A rate that was seen says little once it may have been drawn anew."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A kind of stragglers on a kind of network, drawn from a seed."""

    compute: str
    network: str
    seed: int

    @property
    def run_times(self) -> RunTimes:
        """How long gradients take."""
        return parse_run_times(COMPUTE[self.compute], seed=self.seed, workers=WORKERS, field="compute")

    def make_network(self) -> Network:
        """Return the interfaces, with nothing sent."""
        gigabits, chances = zip(*NETWORKS[self.network], strict=True)
        links = Links(gigabits, chances, _EVERY_S, _LATENCY_S, workers_per_host=PER_HOST)
        return Network(links, self.seed)

    def make_world(self) -> SimulatedWorld:
        """Return a world in which nothing has been sent, and each worker has its host."""
        world = SimulatedWorld(self.run_times, self.seed, network=self.make_network(), shard_bytes=(MODEL_BYTES,))
        for name in MEMBERS:  # hosts are given in the order in which they are asked for
            world.host_of(name)
        return world


Play = Callable[[Setting, float], Row]
"""Returns the figures of a run of so many virtual seconds."""


def measure(
    report: Callable[[Row], None] | None = None,
    *,
    compute: Sequence[str] = tuple(COMPUTE),
    networks: Sequence[str] = tuple(NETWORKS),
    seconds: float = 60.0,
    seeds: Sequence[int] = (1, 2, 3, 4, 5),
) -> list[Row]:
    """Return one row per kind of stragglers, kind of network and system.

    Parameters
    ----------
    seconds
        Virtual time of each run.
    seeds
        Of stragglers and rates, the same for all systems; kinds of stragglers on one network have the same rates.

    Returns
    -------
    list of dict
        ``compute, network, system, seconds_per_30, low, high, ratio_to_ring, aggregation, late, not_sent, dropped,
        staleness_max``.  Seconds per 30 applied updates are the mean over the seeds, with the least and the most; the
        ratio is that of the ring's mean to this one.  `aggregation` is how many gradients a vector that comes to the
        server is made of.  `late` and `not_sent` are the shares of the computed gradients that were dropped when they
        had arrived, and where they were computed; `dropped` is both.  `staleness_max` is the largest of all seeds.
    """
    rows: list[Row] = []
    for stragglers in compute:
        for network in networks:
            settings = [Setting(stragglers, network, seed) for seed in seeds]
            ring_s = math.inf
            for system, play in SYSTEMS.items():
                row = _mean([play(setting, seconds) for setting in settings])
                ring_s = row["seconds_per_30"] if system == "ring" else ring_s
                ratio = ring_s / row["seconds_per_30"]
                rows.append(
                    {"compute": stragglers, "network": network, "system": system, "ratio_to_ring": ratio, **row}
                )
                if report is not None:
                    report(rows[-1])
    return rows


def _mean(rows: Sequence[Row]) -> Row:
    seconds = [row["seconds_per_30"] for row in rows]
    return {
        "seconds_per_30": statistics.fmean(seconds),
        "low": min(seconds),
        "high": max(seconds),
        "aggregation": statistics.fmean(row["aggregation"] for row in rows),
        "late": statistics.fmean(row["late"] for row in rows),
        "not_sent": statistics.fmean(row["not_sent"] for row in rows),
        "dropped": statistics.fmean(row["late"] + row["not_sent"] for row in rows),
        "staleness_max": max(row["staleness_max"] for row in rows),
    }


_NOTHING: Final = {"seconds_per_30": 0.0, "aggregation": 1.0, "late": 0.0, "not_sent": 0.0, "staleness_max": 0}
"""The figures of a run that sends nothing to a server."""


def _all_reduced(all_reduce: AllReduce) -> Play:
    def play(setting: Setting, seconds: float) -> Row:
        run_times, network = setting.run_times, setting.make_network()
        hosts = list(dict.fromkeys(map(setting.make_world().host_of, MEMBERS)))
        now, rounds = 0.0, 0
        while now < seconds:
            rounds += 1
            computed = now + max(seconds_of(run_times, slot, rounds) for slot in range(WORKERS))
            now = all_reduce(network.left(hosts, computed), hosts, MODEL_BYTES, computed)
        return {**_NOTHING, "seconds_per_30": now / rounds * 30 / WORKERS}

    return play


@dataclass(frozen=True, slots=True)
class _Planned:
    """How transfers are planned.

    Attributes
    ----------
    aggregators
        Hosts that may sum and hand on.
    monitored
        Whether monitors tell the rates; else they are learned from transfers that have ended.
    """

    aggregators: int
    monitored: bool = True

    def make_fabric(self, world: SimulatedWorld, network: Network) -> Fabric:
        """Return what plans the transfers of a run in a world."""
        hosts = list(dict.fromkeys(map(world.host_of, MEMBERS)))[: self.aggregators]
        known = Reports(network, _LAG_S) if self.monitored else Estimates(_FASTEST, _FORGET_S)
        return Fabric(FabricPlanner(world.gradients_to(), hosts, known, _TICK_S, relays=hosts), world.host_of)


def _trained(policy: str, options: dict[str, Any], planned: _Planned | None = None) -> Play:
    def play(setting: Setting, seconds: float) -> Row:
        return _summed_up(_run(setting, seconds, policy, options, planned))

    return play


def _run(setting: Setting, seconds: float, policy: str, options: dict[str, Any], planned: _Planned | None) -> Simulated:
    world = setting.make_world()
    plan = Plan(
        "fabric",
        workers=WORKERS,
        shards=1,
        samples=10**9,
        batch_size=32,
        stop=Stop(seconds=seconds),
        schedule=Constant(),
        absence_limit_s=math.inf,
        finish_limit_s=math.inf,
    )
    network = world.network
    fabric = planned.make_fabric(world, network) if planned is not None and network is not None else None
    gradients, trace = SyntheticGradients(1, WORKERS), EventTrace(keep=True)
    return run_world(plan, make_policy(policy, options), gradients, world, trace, seed=setting.seed, fabric=fabric)


def _summed_up(run: Simulated) -> Row:
    commits = [one for one in run.records if one["kind"] == "commit"]
    drops = [one["reason"] for one in run.records if one["kind"] == "dropped"]
    late, unsent = drops.count("delay"), drops.count(reasons.NOT_SENT)
    updates = sum(len(one["slots"]) for one in commits)
    if not updates:
        return {**_NOTHING, "seconds_per_30": math.inf}
    computed = updates + late + unsent
    return {
        "seconds_per_30": 30 * run.virtual_seconds / updates,
        "aggregation": updates / sum(map(_transfers, commits)),
        "late": late / computed,
        "not_sent": unsent / computed,
        "staleness_max": max(max(one["staleness"]) for one in commits),
    }


def _transfers(commit: Mapping[str, Any]) -> int:
    """Return how many vectors came to the servers for a commit: a bundle is one."""
    bundles = commit.get("bundles") or [0] * len(commit["slots"])
    return bundles.count(0) + len(set(bundles) - {0})


_BOUNDED: Final = {"max_delay": DELAY_BOUND}
SYSTEMS: Final[dict[str, Play]] = {
    **{name: _all_reduced(one) for name, one in ALL_REDUCE.items()},
    "bsp": _trained("bsp", {}),
    "bsp, summed": _trained("bsp", {}, _Planned(HOSTS)),
    "asp": _trained("asp", {}),
    "asp, summed": _trained("asp", {}, _Planned(HOSTS)),
    "delay-bounded": _trained("delay-bounded", _BOUNDED),
    "delay-bounded, planned": _trained("delay-bounded", _BOUNDED, _Planned(0)),
    "delay-bounded, summed": _trained("delay-bounded", _BOUNDED, _Planned(HOSTS)),
    "delay-bounded, summed, unmonitored": _trained("delay-bounded", _BOUNDED, _Planned(HOSTS, monitored=False)),
}
"""By name, what returns the figures of one run; the ring first, because others are compared with it."""
