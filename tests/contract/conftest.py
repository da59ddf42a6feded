"""Seeded trouble for runs in memory.

Slow workers and servers, kills, late joiners, messages that come twice or out of order, shards that get a gradient at
different times.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from psplatform.core.coordination.invariants import Invariants
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.core.protocol.effects import Role
from psplatform.core.protocol.messages import Contribution
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Metadata
from psplatform.memory.world import Ideal


@dataclass(frozen=True)
class Fault:
    """Something that happens to a worker at a time."""

    kind: str
    name: str
    at: float


@dataclass(frozen=True)
class Trouble:
    """Everything that distinguishes one random run from another."""

    seed: int
    workers: int
    shards: int
    updates: int
    noisy: bool
    clipped: bool
    epochs: bool
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, seed: int) -> Trouble:
        """Draw a run.  The worker ``w0`` always survives, so that every run can end."""
        rng = random.Random(f"trouble {seed}")
        workers = rng.randint(1, 5)
        faults = [
            Fault(rng.choice(["kill", "kill", "leave"]), f"w{rng.randint(1, 8)}", rng.uniform(0, 12))
            for _ in range(rng.randint(0, 4))
        ]
        faults += [Fault("join", f"late{number}", rng.uniform(0, 12)) for number in range(rng.randint(0, 3))]
        faults += [Fault("kill", "late0", rng.uniform(0, 16))] * rng.randint(0, 1)
        flags = [rng.random() < 0.6, rng.random() < 0.3, rng.random() < 0.5]
        return cls(seed, workers, rng.randint(1, 3), rng.randint(5, 25), *flags, tuple(faults))

    def calm(self) -> Trouble:
        """Return the same run without faults and with a network that delivers everything once and at once."""
        return replace(self, faults=(), noisy=False)

    def smaller(self) -> list[Trouble]:
        """Return the runs that lack one of this one's troubles."""
        fewer = [self.faults[:number] + self.faults[number + 1 :] for number in range(len(self.faults))]
        runs = [replace(self, faults=one) for one in fewer]
        runs += [replace(self, noisy=False)] * self.noisy + [replace(self, clipped=False)] * self.clipped
        return runs + [replace(self, shards=1)] * (self.shards > 1)


class Witness(Metadata):
    """Notes what every shard gathered at each step, and which model was kept."""

    def __init__(self) -> None:
        super().__init__(outcome=lambda slot, sequence: (1.0 / sequence, 1.0))
        self.gathered: dict[int, list[tuple[Contribution, ...]]] = {}
        self.saved: list[int] = []

    def gather(self, copy: str, contributions: tuple[Contribution, ...], *, norms: bool) -> tuple[float, ...] | None:
        self.gathered.setdefault(int(copy.removeprefix("server-")), []).append(contributions)
        return super().gather(copy, contributions, norms=norms)

    def save(self, version: int) -> None:
        self.saved.append(version)


@dataclass
class Outcome:
    """A run that is over, with what was noted of it."""

    run: MemoryRun
    witness: Witness
    outcome: str
    still_waiting: list[str] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
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
        return Counter((one["slot"], one["sequence"]) for one in self.of_kind("start"))

    def orders(self) -> list[list[dict[str, Any]]]:
        """Return the commits of every order: one of the whole model, or one for each block."""
        orders: list[list[dict[str, Any]]] = [[] for _ in self.run.coordinator.state.lanes]
        for record in self.of_kind("commit"):
            orders[record.get("block", 0)].append(record)
        return orders

    def committed(self, block: int = 0) -> Counter[tuple[int, int]]:
        return Counter(key for one in self.orders()[block] for key in zip(one["slots"], one["sequences"], strict=True))

    def given_up(self, kind: str, block: int = 0) -> Counter[tuple[int, int]]:
        """Count what was dropped or aborted, as a whole or of that block."""
        return Counter((one["slot"], one["sequence"]) for one in self.of_kind(kind) if one.get("block", block) == block)


@dataclass(frozen=True, slots=True)
class Rough(Ideal):
    """A world in which each shard's server may get a gradient at another time, and takes its time with it."""

    noisy: bool = False
    way: random.Random = field(default_factory=random.Random)

    def reach_s(self, member: str, shard: int, now: float) -> float:
        return self.way.choice([0.0, 0.0, self.way.uniform(0, 3)]) if self.noisy else 0.0

    def gather_s(self, shard: int, gradients: int) -> float:
        return self.way.choice([0.0, 0.0, 0.5 * gradients]) if self.noisy else 0.0


def suffer(policy: Policy, trouble: Trouble) -> Outcome:
    """Run `policy` through `trouble`."""
    network = random.Random(f"network {trouble.seed}")

    def deliver(_sender: Role, _to: Role, _message: Any) -> list[float]:
        if not trouble.noisy:
            return [0.0]
        return [network.choice([0.0, 0.0, network.uniform(0, 2)]) for _ in range(network.choice([1, 1, 1, 2, 3]))]

    def compute_s(slot: int, sequence: int) -> float:
        return random.Random(f"{trouble.seed} {slot} {sequence}").choice([0.5, 1.0, 1.0, 1.25, 4.0])

    plan = Plan(
        run="contract",
        workers=trouble.workers,
        shards=trouble.shards,
        samples=40,
        batch_size=4,
        stop=Stop(updates=trouble.updates),
        schedule=Constant(),
        deal_epochs=trouble.epochs,
        clip_norm=0.5 if trouble.clipped else None,
        evaluate_every=3,
        evaluates=True,
    )
    witness = Witness()
    world = Rough(compute_s, deliver, noisy=trouble.noisy, way=random.Random(f"way {trouble.seed}"))
    run = MemoryRun(plan, policy, arithmetic=witness, world=world)
    for number in range(trouble.workers):
        run.join(f"w{number}")
    for fault in trouble.faults:
        getattr(run, fault.kind)(fault.name, at=fault.at)
    invariants = Invariants()
    run.on_event = lambda one: invariants.check(one.coordinator.state, one.servers, one.records)
    finish = run.run(events=100_000)
    return Outcome(run, witness, finish.outcome, run.drain())


@pytest.fixture
def through_trouble() -> Callable[..., None]:
    """Check runs of many seeds; a failure names the seed and the least trouble that still fails."""

    def check_all(
        make: Callable[[], Policy], check: Callable[[Outcome], None], *, seeds: int, calm: bool = False
    ) -> None:
        for seed in range(seeds):
            trouble = Trouble.of(seed).calm() if calm else Trouble.of(seed)
            if error_of(make, check, trouble) is not None:
                least = shrunk(make, check, trouble)
                error = error_of(make, check, least)
                pytest.fail(f"seed {seed} fails, at the least so:\n{least}\n{type(error).__name__}: {error}")

    return check_all


def error_of(make: Callable[[], Policy], check: Callable[[Outcome], None], trouble: Trouble) -> Exception | None:
    try:
        check(suffer(make(), trouble))
    except Exception as error:  # noqa: BLE001  whatever goes wrong is what is looked for
        return error
    return None


def shrunk(make: Callable[[], Policy], check: Callable[[Outcome], None], trouble: Trouble) -> Trouble:
    for smaller in trouble.smaller():
        if error_of(make, check, smaller) is not None:
            return shrunk(make, check, smaller)
    return trouble


@pytest.fixture
def history() -> Callable[[Policy, int], list[dict[str, Any]]]:
    """Return the records of the run of a seed."""
    return lambda policy, seed: suffer(policy, Trouble.of(seed)).run.records
