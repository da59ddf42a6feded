"""Runs of a policy in memory, disturbed by chance.

Slow workers and servers, kills, late joiners, messages that come twice or out of order, shards that get a gradient at
different times; all drawn from a seed.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from psplatform.core.coordination.invariants import Invariants
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy, Scope
from psplatform.core.protocol.messages import Contribution
from psplatform.core.protocol.names import Role
from psplatform.core.transfers import Fabric
from psplatform.errors import ConfigurationError, PsplatformError
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Metadata
from psplatform.memory.world import Ideal
from psplatform.network.learning import learned_rates
from psplatform.network.planner import FabricPlanner
from psplatform.simulation.faults.random_planner import RandomPlanner

_MOST_WORKERS: Final = 16

_MOST_EVENTS: Final = 20_000
"""After which a run counts as one that does not end."""

_GRADIENT_BYTES: Final = 1e6
_AT_RANDOM: Final = 0.7
"""Share of the runs with aggregators in which sums are made at random: by what is believed, there would be few."""

_STEADY: Final = 0.5
"""Share of the other planners that expect rates to stay as they are."""

_BELIEVED_S: Final = (0.01, 0.5, 2.0)
"""Seconds that a gradient is believed to take, where transfers are planned."""

MakePolicy = Callable[[], Policy]
"""Makes the policy anew for each run: it learns."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What happens to a worker.

    Attributes
    ----------
    kind
        ``kill``, ``leave`` or ``join``.
    worker
        Its name.
    at
        Virtual seconds after the start.
    """

    kind: str
    worker: str
    at: float


@dataclass(frozen=True, slots=True)
class RandomRun:
    """Everything that distinguishes one random run from another.

    Attributes
    ----------
    seed
        Of run times and messages.
    workers, shards, updates
        How many.
    noisy
        Whether messages are late, out of order and repeated, and shards get gradients at different times.
    clipped
        Whether gradients are clipped by their norm.
    epochs
        Whether batches are dealt in epochs.
    planned
        Whether transfers are planned, at rates that are not the network's, where the policy decides about the whole
        model.
    disturbances
        What happens to workers.
    """

    seed: int
    workers: int
    shards: int
    updates: int
    noisy: bool
    clipped: bool
    epochs: bool
    planned: bool
    disturbances: tuple[Disturbance, ...]

    @classmethod
    def draw(cls, seed: int, least: int = 1) -> RandomRun:
        """Draw a run of `least` workers or more.  ``w0`` always survives, so that every run can end."""
        rng = random.Random(f"trouble {seed}")
        workers = rng.randint(1, 5)
        met = [
            Disturbance(rng.choice(["kill", "kill", "leave"]), f"w{rng.randint(1, 8)}", rng.uniform(0, 12))
            for _ in range(rng.randint(0, 4))
        ]
        met += [Disturbance("join", f"late{number}", rng.uniform(0, 12)) for number in range(rng.randint(0, 3))]
        met += [Disturbance("kill", "late0", rng.uniform(0, 16))] * rng.randint(0, 1)
        noisy, clipped, epochs = rng.random() < 0.6, rng.random() < 0.3, rng.random() < 0.5
        shards, updates = rng.randint(1, 3), rng.randint(5, 25)
        planned = rng.random() < 0.4
        return cls(seed, max(workers, least), shards, updates, noisy, clipped, epochs, planned, tuple(met))

    def calm(self) -> RandomRun:
        """Return the same run undisturbed, without a planner, on a network that delivers all once and at once."""
        return replace(self, disturbances=(), noisy=False, planned=False)

    def smaller(self) -> list[RandomRun]:
        """Return the runs that lack one thing of this one."""
        met = self.disturbances
        runs = [replace(self, disturbances=met[:number] + met[number + 1 :]) for number in range(len(met))]
        runs += [replace(self, noisy=False)] * self.noisy + [replace(self, clipped=False)] * self.clipped
        runs += [replace(self, planned=False)] * self.planned
        return runs + [replace(self, shards=1)] * (self.shards > 1)


class Witness(Metadata):
    """Figures in the place of tensors, and notes of what each shard gathered and which model was saved.

    Attributes
    ----------
    gathered
        By shard, the contributions of each step.
    saved
        Versions that were saved.
    """

    def __init__(self) -> None:
        super().__init__(outcome=lambda slot, sequence: (1.0 / sequence, 1.0))
        self.gathered: dict[int, list[tuple[Contribution, ...]]] = {}
        self.saved: list[int] = []

    def gather(
        self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool, updates: int = 1
    ) -> tuple[float, ...] | None:
        """Count what a server averages."""
        self.gathered.setdefault(int(copy.removeprefix("server-")), []).append(contributions)
        return super().gather(copy, contributions, norms=norms, updates=updates)

    def save(self, version: int) -> None:
        """Keep which version is saved."""
        self.saved.append(version)


@dataclass(slots=True)
class FinishedRun:
    """A run that is over.

    Attributes
    ----------
    run
        As the in-memory driver leaves it: the coordinator's state, the servers, the log in ``run.records``.
    witness
        What the servers did.
    outcome, detail
        Why it ended, ``updates`` where as asked, and what is said of that.
    failure
        What it failed with, or ``None``.
    still_waiting
        Pulls that nobody answered.
    """

    run: MemoryRun
    witness: Witness
    outcome: str
    detail: str = ""
    failure: PsplatformError | None = None
    still_waiting: list[str] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of the log of one kind."""
        return self.run.of_kind(kind)

    def live_at_commits(self) -> list[tuple[dict[str, Any], set[int]]]:
        """Return every commit with the slots that had a live worker then."""
        live: set[int] = set()
        found = []
        for record in self.run.records:
            if record["kind"] == "joined":
                live.add(record["slot"])
            elif record["kind"] in ("lost", "left"):
                live.discard(record["slot"])
            elif record["kind"] == "commit":
                found.append((record, set(live)))
        return found

    def started(self) -> Counter[tuple[int, int]]:
        """Count how often each gradient, (slot, sequence), was started."""
        return Counter((one["slot"], one["sequence"]) for one in self.of_kind("start"))

    def orders(self) -> list[list[dict[str, Any]]]:
        """Return the commits of every order: one of the whole model, or one for each block."""
        orders: list[list[dict[str, Any]]] = [[] for _ in self.run.coordinator.state.commit_logs]
        for record in self.of_kind("commit"):
            orders[record.get("block", 0)].append(record)
        return orders

    def committed(self, block: int = 0) -> Counter[tuple[int, int]]:
        """Count how often each gradient was committed, to that block where there is an order for each."""
        return Counter(key for one in self.orders()[block] for key in zip(one["slots"], one["sequences"], strict=True))

    def given_up(self, kind: str, block: int = 0) -> Counter[tuple[int, int]]:
        """Count what was ``dropped`` or ``aborted``, as a whole or of that block."""
        return Counter((one["slot"], one["sequence"]) for one in self.of_kind(kind) if one.get("block", block) == block)


@dataclass(frozen=True, slots=True)
class _Rough(Ideal):
    """A world in which each shard's server may get a gradient at another time, and takes its time with it."""

    noisy: bool = False
    way: random.Random = field(default_factory=random.Random)

    def reach_s(self, member: str, shard: int, now: float) -> float:
        return self.way.choice([0.0, 0.0, self.way.uniform(0, 3)]) if self.noisy else 0.0

    def part_s(self, member: str, aggregator: str, now: float) -> float:
        return self.reach_s(member, 0, now)

    def gather_s(self, shard: int, gradients: int) -> float:
        return self.way.choice([0.0, 0.0, 0.5 * gradients]) if self.noisy else 0.0


def run_policy(policy: Policy, run: RandomRun) -> FinishedRun:
    """Run `policy` through a random run; what must hold after every event is checked.

    Raises
    ------
    InvariantViolation
        If something does not.
    RuntimeError
        If the run does not end.
    """
    network = random.Random(f"network {run.seed}")

    def deliver(_sender: Role, _to: Role, _message: Any) -> list[float]:
        if not run.noisy:
            return [0.0]
        return [network.choice([0.0, 0.0, network.uniform(0, 2)]) for _ in range(network.choice([1, 1, 1, 2, 3]))]

    def compute_s(slot: int, sequence: int) -> float:
        return random.Random(f"{run.seed} {slot} {sequence}").choice([0.5, 1.0, 1.0, 1.25, 4.0])

    plan = Plan(
        run="contract",
        workers=run.workers,
        shards=run.shards,
        samples=40,
        batch_size=4,
        stop=Stop(updates=run.updates),
        schedule=Constant(),
        deal_epochs=run.epochs,
        clip_norm=0.5 if run.clipped else None,
        evaluate_every=3,
        evaluates=True,
    )
    witness = Witness()
    world = _Rough(compute_s, deliver, noisy=run.noisy, way=random.Random(f"way {run.seed}"))
    planned = run.planned and policy.traits.scope is Scope.MODEL
    driver = MemoryRun(plan, policy, arithmetic=witness, world=world, fabric=_fabric(run, policy) if planned else None)
    for number in range(run.workers):
        driver.join(f"w{number}")
    for met in run.disturbances:
        getattr(driver, met.kind)(met.worker, at=met.at)
    invariants = Invariants()
    driver.on_event = lambda one: invariants.check(one.coordinator.state, one.servers, one.records)
    finish = driver.run(events=_MOST_EVENTS)
    return FinishedRun(driver, witness, finish.outcome, finish.detail, finish.failure, driver.drain())


def _fabric(run: RandomRun, policy: Policy) -> Fabric:
    chance = random.Random(f"rates {run.seed}")
    believed = _GRADIENT_BYTES / chance.choice(_BELIEVED_S)
    aggregators = [f"w{number}" for number in range(chance.randint(0, 2))] if policy.traits.sums else []
    if aggregators and chance.random() < _AT_RANDOM:
        return Fabric(RandomPlanner(run.seed, aggregators, tick_s=0.25), host_of=str)
    estimates = learned_rates(None if chance.random() < _STEADY else 9.0, believed)
    return Fabric(FabricPlanner([("server", _GRADIENT_BYTES)], aggregators, estimates, tick_s=0.25), host_of=str)


def least_workers(make: MakePolicy) -> int:
    """Return for how few workers the policy allows a job.

    Raises
    ------
    ConfigurationError
        If it refuses every number up to 16: what it says of 16.
    """
    for workers in range(1, _MOST_WORKERS):
        with contextlib.suppress(ConfigurationError):
            make().check(workers)
            return workers
    make().check(_MOST_WORKERS)
    return _MOST_WORKERS


def check_runs(make: MakePolicy, check: Callable[[FinishedRun], None], seeds: Iterable[int], *, calm: bool) -> None:
    """Let `check` look at a run of each seed; `calm` ones are undisturbed.

    Raises
    ------
    AssertionError
        If a run fails or `check` raises: names the seed, and the run, as small as leaving things out makes it.
    """
    least = least_workers(make)
    for seed in seeds:
        run = RandomRun.draw(seed, least).calm() if calm else RandomRun.draw(seed, least)
        if _error_of(make, check, run) is not None:
            smaller = _shrunk(make, check, run)
            error = _error_of(make, check, smaller)
            text = (
                f"seed {seed} fails, and so does what is left of its run:\n{smaller}\n{type(error).__name__}: {error}"
            )
            raise AssertionError(text) from error


def _error_of(make: MakePolicy, check: Callable[[FinishedRun], None], run: RandomRun) -> Exception | None:
    try:
        check(run_policy(make(), run))
    except Exception as error:  # noqa: BLE001  whatever goes wrong is what is looked for
        return error
    return None


def _shrunk(make: MakePolicy, check: Callable[[FinishedRun], None], run: RandomRun) -> RandomRun:
    for smaller in run.smaller():
        if _error_of(make, check, smaller) is not None:
            return _shrunk(make, check, smaller)
    return run
