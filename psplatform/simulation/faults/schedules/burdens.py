"""What real processes cost beside being lost: gradients are sent again, copies are closed, workers cannot be started.

Each of these scenarios gives its trial what its title says.  Some other trials have one of it beside their faults, from
a stream of its own: every seed keeps its other choices.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from psplatform.simulation.faults.schedules.hosts import on_hosts
from psplatform.simulation.faults.schedules.scenarios import UNTIL_S, Scenario, Scene, loosely
from psplatform.simulation.faults.schedules.schedule import BREAK, Fault
from psplatform.simulation.faults.schedules.trial import LIVENESS, Copying, Trial

_SHARE: Final = 0.1
"""Share of the trials in which there is one of it beside all else, but for those of the mode ``liveness``."""


def with_burdens(trial: Trial) -> Trial:
    """Return the trial, or one in which real processes cost something, as its seed says."""
    rng = random.Random(f"burdens {trial.seed}")
    if trial.mode == LIVENESS or rng.random() >= _SHARE:
        return trial
    burdens: list[dict[str, Any]] = [
        {"again_s": rng.uniform(0.1, 2)},
        {"closes": True},
        {"overwritten": rng.uniform(0.02, 0.2)},
    ]
    if trial.hosts:
        burdens.append({"refusing": rng.uniform(0.2, 0.6)})
    return replace(trial, **rng.choice(burdens))


def _gradients_are_sent_again(rng: random.Random, trial: Trial) -> Scene:
    # A promoted server has a step to make up for whose gradients only the lost one had, and perhaps a part to write.
    trial = replace(loosely(rng, trial), shared=False, spares=4, workers=max(2, trial.workers), updates=30)
    trial = replace(trial, again_s=rng.uniform(0.2, 2), cut_every=rng.choice([0, 1, 2, 3]))
    start = rng.uniform(1, UNTIL_S)
    slow = Fault("delay", "replica 0", at=max(0.0, start - 1.5), seconds=1.5, factor=rng.uniform(0.1, 1))
    who = rng.choice(["server 0", "coordinator", "worker 0", "replica 0"])
    more = [(), (), (Fault("kill", who, at=start + rng.uniform(0, 3)),)]
    return Scene(trial, (*rng.choice([(), (slow,)]), Fault("kill", "server 0", at=start), *rng.choice(more)))


def _promoted_server_writes_parts_alone(rng: random.Random, trial: Trial) -> Scene:
    # Of the steps that it makes up for, one is the last before a checkpoint, and the next has to wait for gradients.
    copying = Copying(1, float(rng.choice([2, 4, 8])), "updates")
    trial = replace(trial, copying=copying, standby=True, shared=False, spares=0, workers=4, updates=40, fabric=False)
    trial = replace(trial, policy="asp", parameters={}, again_s=rng.uniform(0.2, 2), cut_every=rng.choice([1, 2]))
    start = rng.uniform(1, UNTIL_S)
    slow = Fault("delay", "replica 0", at=max(0.0, start - 1.5), seconds=1.5, factor=rng.uniform(0.1, 1))
    return Scene(trial, (slow, Fault("kill", "server 0", at=start)))


def _copies_are_closed(rng: random.Random, trial: Trial) -> Scene:
    # They are given up while they compute, or stand still, or cannot be heard.
    trial = replace(loosely(rng, trial, rng.choice([1, 2])), leases=True, shared=False, spares=6, closes=True)
    start, seconds = rng.uniform(1, UNTIL_S), rng.uniform(2, 9)
    who = rng.choice(["server 0", "replica 0"])
    gone = [
        Fault("pause", who, at=start, seconds=seconds),
        Fault("partition", who, at=start, seconds=seconds, others=("coordinator",)),
        Fault("retire", who, at=start, seconds=3.0),
    ]
    more = [(), (), (Fault("kill", "coordinator", at=start + rng.uniform(-1, 4)),)]
    return Scene(trial, (rng.choice(gone), *rng.choice(more)))


def _what_speaks_to_the_storage_breaks(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), cut_every=rng.choice([1, 2, 3]))
    broken = Fault("storage", at=rng.uniform(0, UNTIL_S), what="manifest", how=BREAK, write=rng.randint(1, 2))
    more = [(), (), (Fault("kill", rng.choice(["server 0", "coordinator"]), at=rng.uniform(1, UNTIL_S)),)]
    return Scene(trial, (broken, *rng.choice(more)))


def _parameters_are_written_over(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), overwritten=rng.uniform(0.05, 0.3), spares=2)
    faults, at = [], rng.uniform(1, UNTIL_S)
    for _ in range(rng.randint(1, 2)):
        who = rng.choice(["server 0", "coordinator", "worker 0"])
        faults.append(Fault(rng.choice(["kill", "pause"]), who, at=at, seconds=rng.uniform(1, 6)))
        at += rng.uniform(0, 3)
    return Scene(trial, tuple(faults))


def _workers_cannot_be_started(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), leases=True, workers=rng.choice([2, 3]), shards=1, updates=rng.randint(30, 60))
    trial = on_hosts(rng, trial, hosts=3)
    trial = replace(trial, processes=trial.processes + rng.randint(0, 3), refusing=rng.uniform(0.3, 0.8))
    trial = replace(trial, late=tuple(rng.uniform(0, 2 * UNTIL_S) for _ in range(rng.randint(0, 3))))
    faults, at = [], rng.uniform(0.5, UNTIL_S)
    for _ in range(rng.randint(1, 3)):
        who = rng.choice(["worker 0", "worker 1", "worker 2", "replica 0", "coordinator"])
        faults.append(Fault(rng.choice(["kill", "pause"]), who, at=at, seconds=rng.uniform(3, 9)))
        at += rng.choice([0.0, rng.uniform(0, 1), rng.uniform(2, 6)])
    return Scene(trial, tuple(faults))


def _workers_are_lost_for_long(rng: random.Random, trial: Trial) -> Scene:
    # All of them at once, and no process is left that has no copy of a shard: one comes as they are about to share.
    trial = replace(loosely(rng, trial), leases=False, workers=rng.choice([1, 2]), shards=1, updates=60)
    trial = replace(trial, hosts=2, processes=trial.workers + 2, nannies=False)
    start = rng.uniform(0.5, UNTIL_S)
    comes = tuple(start + rng.uniform(4.5, 6.5) for _ in range(rng.choice([1, 2])))
    kills = [Fault("kill", f"worker {number}", at=start) for number in range(trial.workers)]
    return Scene(replace(trial, late=comes), tuple(kills))


def _evaluator_is_alone_with_servers(rng: random.Random, trial: Trial) -> Scene:
    # The processes of all workers are lost, and then that of the evaluator: only servers are left to share with.
    trial = replace(loosely(rng, trial), leases=False, workers=rng.choice([1, 2]), shards=1, updates=60)
    trial = replace(trial, hosts=2, processes=trial.workers + 3, nannies=False)
    start = rng.uniform(0.5, UNTIL_S)
    kills = [Fault("kill", f"worker {number}", at=start) for number in range(trial.workers)]
    return Scene(trial, (*kills, Fault("kill", "evaluator", at=start + rng.uniform(0.2, 2))))


BURDENED: Final[dict[str, Scenario]] = {
    "gradients are sent again": _gradients_are_sent_again,
    "a promoted server writes parts alone": _promoted_server_writes_parts_alone,
    "copies are closed": _copies_are_closed,
    "what speaks to the storage breaks": _what_speaks_to_the_storage_breaks,
    "parameters are written over": _parameters_are_written_over,
    "workers cannot be started": _workers_cannot_be_started,
    "workers are lost for long": _workers_are_lost_for_long,
    "an evaluator is alone with servers": _evaluator_is_alone_with_servers,
}
