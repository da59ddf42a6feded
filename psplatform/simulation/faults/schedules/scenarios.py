"""Losses that come together: what makes a protocol fail, and what chance alone would draw too rarely.

Each scenario changes a trial so that it can happen, and says which faults make it happen; when, and how long they last,
is drawn as ever.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import Copying, Noise, Trial

UNTIL_S: Final = 10.0
"""Seconds within which a scenario begins."""

CLOCKS: Final = 0.045
"""Most by which a copy's clock runs faster or slower: two of them differ by less than a lease's margin."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A trial, and what befalls it."""

    trial: Trial
    faults: tuple[Fault, ...]


Scenario = Callable[[random.Random, Trial], Scene]


def draw_scenario(rng: random.Random, trial: Trial, name: str = "") -> Scene:
    """Return the scenario of that name, or one of them, in `trial`."""
    return SCENARIOS[name or rng.choice(sorted(SCENARIOS))](rng, trial)


def loosely(rng: random.Random, trial: Trial, replicas: int = 1) -> Trial:
    """Return the trial with replicas that may lag."""
    return replace(trial, copying=Copying(replicas, float(rng.choice([1, 2, 4, 8])), "updates"), standby=True)


def _coordinator_wakes_up(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), leases=True, shared=False, spares=2)
    at, seconds = rng.uniform(1, UNTIL_S), rng.uniform(3, 9)
    if rng.random() < 0.5:
        return Scene(trial, (Fault("pause", "coordinator", at=at, seconds=seconds),))
    way = rng.choice(("both", "out", "in"))
    return Scene(trial, (Fault("partition", "coordinator", at=at, seconds=seconds, others=("standby",), way=way),))


def _server_wakes_up(rng: random.Random, trial: Trial) -> Scene:
    # Its clock is as slow beside the coordinator's, which is right, as two of them may be beside each other, so that it
    # believes in its lease for as long as it can.
    trial = replace(loosely(rng, trial, 2), leases=True, shared=False, rates={"server-0": 1.0 - 2 * CLOCKS})
    at, seconds = rng.uniform(1, UNTIL_S), rng.uniform(3, 9)
    late = (Fault("reorder", "server 0", at=at - 0.5, seconds=3.0, factor=rng.uniform(1, 8)),)
    others = rng.choice([("coordinator",), ("coordinator", "standby"), ("coordinator", "replica 0")])
    way = rng.choice(("both", "out"))
    gone = [
        Fault("pause", "server 0", at=at, seconds=seconds),
        Fault("partition", "server 0", at=at, seconds=seconds, others=others, way=way),
    ]
    return Scene(trial, (rng.choice(gone), *rng.choice([(), late, late, late])))


def _unit_is_lost(rng: random.Random, trial: Trial) -> Scene:
    # The coordinator dies with a server, and with what only the two knew.
    trial = replace(loosely(rng, trial), shared=True, shards=rng.choice([1, 2, 3]))
    if trial.copying is not None and rng.random() < 0.5:
        trial = replace(trial, copying=replace(trial.copying, bound=0.0))
    trial = replace(trial, noise=rng.choice([trial.noise, Noise(0.05, 1.0)]))
    faults = [Fault("kill", "server 0", at=rng.uniform(1, UNTIL_S))]
    if rng.random() < 0.5:
        faults.insert(0, Fault("delay", "standby", at=0.0, seconds=20.0, factor=rng.uniform(0.1, 1)))
    return Scene(trial, tuple(faults))


def _lagging_replica_is_promoted(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), noise=rng.choice([Noise(), Noise(0.02, 0.3), Noise(0.05, 1.0, 0.1)]), spares=2)
    trial = replace(trial, cut_every=rng.choice([0, 2, 3]))
    start = rng.uniform(2, UNTIL_S)
    slow = Fault("delay", "replica 0", at=max(0.0, start - 2), seconds=4.0, factor=rng.uniform(0.2, 2))
    return Scene(trial, (slow, Fault("kill", "server 0", at=start)))


def _joining_replica_is_all_there_is(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), spares=4, noise=rng.choice([Noise(0.02, 0.3), Noise(0.05, 1.0, 0.1)]))
    start = rng.uniform(1, UNTIL_S)
    slow = Fault("delay", "server 0", at=start, seconds=3.0, factor=rng.uniform(0.1, 1.5))
    then = Fault("kill", "server 0", at=start + rng.uniform(0.05, 3))
    return Scene(trial, (Fault("kill", "replica 0", at=start), slow, then))


def _replica_then_coordinator(rng: random.Random, trial: Trial) -> Scene:
    # The standby lives beside a replica of the first shard, and must outlive the one that is lost.
    trial = replace(loosely(rng, trial), shared=False, noise=rng.choice([Noise(), Noise(0.02, 0.3)]), shards=2)
    start = rng.uniform(1, UNTIL_S)
    cut_off = Fault("delay", "standby", at=start - 0.5, seconds=5.0, factor=rng.uniform(0.5, 3))
    roles = rng.choice([("coordinator",), ("coordinator", "server 1"), ("server 1", "coordinator")])
    kills = [Fault("kill", role, at=start + rng.uniform(0.1, 4)) for role in roles]
    return Scene(trial, (cut_off, Fault("kill", "replica 1", at=start), *kills))


def _one_coordinator_after_the_other(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), spares=6)
    start = rng.uniform(1, UNTIL_S)
    faults = [Fault("kill", "coordinator", at=start)]
    for _ in range(rng.randint(1, 3)):
        start += rng.choice([rng.uniform(0.02, 0.3), rng.uniform(0.3, 4)])
        faults.append(Fault("kill", rng.choice(["coordinator", "standby", "server 0", "worker 0"]), at=start))
    return Scene(trial, tuple(faults))


def _storage_fails(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), cut_every=2)
    faults = [
        Fault("storage", at=0.0, what=rng.choice(["part", "manifest"]), how=how, write=rng.randint(1, 6))
        for how in ("fail", "torn", "lost")
    ]
    return Scene(trial, (*faults, Fault("kill", rng.choice(["server 0", "coordinator"]), at=rng.uniform(2, UNTIL_S))))


SCENARIOS: Final[dict[str, Scenario]] = {
    "a coordinator wakes up": _coordinator_wakes_up,
    "a server wakes up": _server_wakes_up,
    "a unit is lost": _unit_is_lost,
    "a lagging replica is promoted": _lagging_replica_is_promoted,
    "a joining replica is all there is": _joining_replica_is_all_there_is,
    "a replica, then the coordinator": _replica_then_coordinator,
    "one coordinator after the other": _one_coordinator_after_the_other,
    "the storage fails": _storage_fails,
}
