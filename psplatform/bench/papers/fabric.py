"""30 workers on networks whose rates change: all-reduce and asynchronous runs, each simulated for some time.

The setting of R. Viswanathan and A. Akella, "Network-accelerated Distributed Machine Learning Using MLfabric", 2020,
section 7: 30 workers on 15 hosts, gradients of 100 MB that take 0.1 s, interfaces of 10 Gb/s.  Kinds of stragglers (C1
to C3: how many gradients of each worker are how much slower by chance) and of networks (N1 to N3: what each direction
of an interface can carry, drawn anew every five seconds) have the paper's names.  Gradients may take longer than 0.1 s,
which is 1.25 times what the model takes through an interface: `psplatform.bench.papers.fabric_tables` says why.

Everything is simulated.  The server's interface changes as all others do, a worker pulls when its gradient has arrived,
and replicas take no part.  Where transfers are `planned`, each gradient is sent straight to the server, and some are
dropped where they lie; where they are `summed`, every host may sum gradients on their way and hand parameters on, and
the planner knows all rates as monitors tell them 0.2 s late; `unmonitored`, it learns them from transfers that have
ended.

In an all-reduce hosts sum what is theirs before, and all wait for the slowest.  It is not charged for latencies (0.1 ms
a message) nor for the first parameters, which asynchronous runs are.  The tree is binary and passes the whole model
from level to level: libraries cut it into parts that follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psplatform.bench.papers.scheduler import NETWORKS
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
from psplatform.simulation.driver import run_world
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.monitoring import Reports
from psplatform.simulation.network import Links, Network
from psplatform.simulation.run_times import RunTimes, seconds_of
from psplatform.simulation.synthetic import SyntheticGradients
from psplatform.simulation.world import SimulatedWorld

AllReduce = Callable[[NetworkState, Sequence[str], float, float], float]

WORKERS: Final = 30
MEMBERS: Final = tuple(f"w{number}" for number in range(WORKERS))
"""Their names in a simulated run."""

PER_HOST: Final = 2
MODEL_BYTES: Final = 100e6
DELAY_BOUND: Final = 30
HOSTS: Final = WORKERS // PER_HOST

TRANSFER_S: Final = MODEL_BYTES / (10.0 * BYTES_PER_GIGABIT)
"""What the model takes through an interface at its full rate, seconds."""

PRINTED: Final = 1.25
"""A gradient's 0.1 s in such transfers."""

COMPUTE: Final = {"C1": "slow:chance=0.1,factor=2", "C2": "slow:chance=0.1,factor=4", "C3": "slow:chance=0.04,factor=2"}
"""How gradients are slower than they should be."""

ONE_IN_FIVE: Final = "1 Gb/s: 0.2"
"""A network that the paper measures the lag of monitors with, and has no name for."""

_RATES: Final = {**NETWORKS, ONE_IN_FIVE: ((1.0, 0.2), (10.0, 0.8))}
EVERY_S: Final = 5.0
_LATENCY_S: Final = 1e-4

WARM_UP: Final = 0.2
"""The share of a run in which workers that all begin at once, and wait for their first parameters, get out of step."""

TICK_S: Final = 0.1
LAG_S: Final = 0.2
"""Seconds by which monitors are late, as the paper has it."""

_FASTEST: Final = 10.0 * BYTES_PER_GIGABIT
_FORGET_S: Final = EVERY_S
"""A rate that was seen says little once it may have been drawn anew."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A kind of stragglers on a kind of network, drawn from a seed.

    Attributes
    ----------
    transfers
        What a gradient takes that is not slow, in transfers of the model at the full rate (`TRANSFER_S`).
    """

    compute: str
    network: str
    seed: int
    transfers: float = PRINTED

    @property
    def run_times(self) -> RunTimes:
        """How long gradients take."""
        text = f"constant:seconds={self.transfers * TRANSFER_S:g};{COMPUTE[self.compute]}"
        return parse_run_times(text, seed=self.seed, workers=WORKERS, field="compute")

    def make_network(self) -> Network:
        """Return the interfaces, with nothing sent."""
        gigabits, chances = zip(*_RATES[self.network], strict=True)
        links = Links(gigabits, chances, EVERY_S, _LATENCY_S, workers_per_host=PER_HOST)
        return Network(links, self.seed)

    def make_world(self) -> SimulatedWorld:
        """Return a world in which nothing has been sent, and each worker has its host."""
        world = SimulatedWorld(self.run_times, self.seed, network=self.make_network(), shard_bytes=(MODEL_BYTES,))
        for name in MEMBERS:  # hosts are given in the order in which they are asked for
            world.host_of(name)
        return world


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run comes to, or a part of it.

    Attributes
    ----------
    applied_s, computed_s
        Seconds per 30 gradients that were applied, and that were computed: of those that are dropped as well.
    aggregation
        How many gradients a vector that comes to the server is made of.
    late, not_sent
        The shares of the computed gradients that were dropped when they had arrived, and where they were computed.
    staleness_max
        The largest, updates.
    """

    applied_s: float
    computed_s: float
    aggregation: float = 1.0
    late: float = 0.0
    not_sent: float = 0.0
    staleness_max: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """The figures of a whole run, and those from the end of its `WARM_UP` on."""

    whole: Figures
    later: Figures


Play = Callable[[Setting, float], Played]
"""Returns the figures of a run of so many virtual seconds."""


@dataclass(frozen=True, slots=True)
class AllReduced:
    """All workers wait for the slowest, then for the all-reduce; nothing is sent to a server, and nothing warms up."""

    all_reduce: AllReduce

    def __call__(self, setting: Setting, seconds: float) -> Played:
        """Return the figures of as many rounds as begin in that time."""
        run_times, network = setting.run_times, setting.make_network()
        hosts = list(dict.fromkeys(map(setting.make_world().host_of, MEMBERS)))
        now, rounds = 0.0, 0
        while now < seconds:
            rounds += 1
            computed = now + max(seconds_of(run_times, slot, rounds) for slot in range(WORKERS))
            now = self.all_reduce(network.left(hosts, computed), hosts, MODEL_BYTES, computed)
        per_30 = now / rounds * 30 / WORKERS
        return Played(Figures(per_30, per_30), Figures(per_30, per_30))


@dataclass(frozen=True, slots=True)
class Planned:
    """How transfers are planned.

    Attributes
    ----------
    aggregators
        Hosts that may sum and hand on.
    lag_s
        Seconds by which monitors are late that tell the rates; ``None`` for none, so that rates are learned from
        transfers that have ended.
    """

    aggregators: int = HOSTS
    lag_s: float | None = LAG_S

    def make_fabric(self, world: SimulatedWorld, network: Network) -> Fabric:
        """Return what plans the transfers of a run in a world."""
        hosts = list(dict.fromkeys(map(world.host_of, MEMBERS)))[: self.aggregators]
        known = Estimates(_FASTEST, _FORGET_S) if self.lag_s is None else Reports(network, self.lag_s)
        return Fabric(FabricPlanner(world.gradients_to(), hosts, known, TICK_S, relays=hosts), world.host_of)


@dataclass(frozen=True, slots=True)
class Trained:
    """A run with one server under a policy.

    Attributes
    ----------
    max_delay
        The bound that `delay-bounded` is given.
    planned
        How transfers are planned; ``None`` for not at all.
    """

    policy: str
    max_delay: int | None = None
    planned: Planned | None = None

    def __call__(self, setting: Setting, seconds: float) -> Played:
        """Return the figures of a run that ends after that time."""
        records, end = self._run(setting, seconds)
        return Played(_figures(records, 0.0, end), _figures(records, WARM_UP * end, end))

    def _run(self, setting: Setting, seconds: float) -> tuple[list[dict[str, Any]], float]:
        """Return the log of a run, and how long that took, in virtual seconds."""
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
        network, planned = world.network, self.planned
        fabric = planned.make_fabric(world, network) if planned is not None and network is not None else None
        policy = make_policy(self.policy, {} if self.max_delay is None else {"max_delay": self.max_delay})
        gradients, trace = SyntheticGradients(1, WORKERS), EventTrace(keep=True)
        run = run_world(plan, policy, gradients, world, trace, seed=setting.seed, fabric=fabric)
        return run.records, run.virtual_seconds


def _figures(records: Iterable[Mapping[str, Any]], begin: float, end: float) -> Figures:
    """Return the figures of what was applied or dropped in a part of a run."""
    among = [one for one in records if one["at"] >= begin]
    commits = [one for one in among if one["kind"] == "commit"]
    drops = [one["reason"] for one in among if one["kind"] == "dropped"]
    late, unsent = drops.count("delay"), drops.count(reasons.NOT_SENT)
    updates = sum(len(one["slots"]) for one in commits)
    if not updates:
        return Figures(math.inf, math.inf)
    computed = updates + late + unsent
    return Figures(
        applied_s=30 * (end - begin) / updates,
        computed_s=30 * (end - begin) / computed,
        aggregation=updates / sum(map(_transfers, commits)),
        late=late / computed,
        not_sent=unsent / computed,
        staleness_max=max(max(one["staleness"]) for one in commits),
    )


def _transfers(commit: Mapping[str, Any]) -> int:
    """Return how many vectors came to the servers for a commit: a bundle is one."""
    bundles = commit.get("bundles") or [0] * len(commit["slots"])
    return bundles.count(0) + len(set(bundles) - {0})


RING: Final = AllReduced(ring_all_reduce)
ASP: Final = Trained("asp")
SUMMED: Final = Trained("delay-bounded", DELAY_BOUND, Planned())

SYSTEMS: Final[dict[str, Play]] = {
    "ring": RING,
    "tree": AllReduced(tree_all_reduce),
    "bsp": Trained("bsp"),
    "bsp, summed": Trained("bsp", planned=Planned()),
    "asp": ASP,
    "asp, summed": Trained("asp", planned=Planned()),
    "delay-bounded": Trained("delay-bounded", DELAY_BOUND),
    "delay-bounded, planned": Trained("delay-bounded", DELAY_BOUND, Planned(aggregators=0)),
    "delay-bounded, summed": SUMMED,
    "delay-bounded, summed, unmonitored": Trained("delay-bounded", DELAY_BOUND, Planned(lag_s=None)),
}
"""By name, what returns the figures of one run; the ring first, because others are compared with it."""
