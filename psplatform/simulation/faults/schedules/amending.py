"""Faults that the search has learned later, each drawn from a stream of its own: every seed keeps its other choices.

Processes end in good order, alone and together with what else goes wrong; the one that grants the next term cannot be
reached; workers are heard later than everybody else; a server is lost while a takeover is under way.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from psplatform.simulation.faults.schedules.scenarios import UNTIL_S, Scenario, Scene, loosely
from psplatform.simulation.faults.schedules.schedule import WAYS, Fault
from psplatform.simulation.faults.schedules.trial import LIVENESS, Noise, Trial

_LIMIT_S: Final = 3.0
"""Seconds that a process which ends in good order has in a real run."""

_GENTLE: Final = 0.4
"""Share of the trials of the mode ``liveness`` in which the process that is lost ends in good order."""

_SCENARIOS: Final = 0.1
"""Share of the other trials that follow one of the scenarios here instead of what they would do."""

_BESIDE: Final = 0.15
"""Share of those in which, beside everything else, a process ends in good order."""

_CLAIMS: Final = 0.1
"""Share of the trials with a standby in which claims are held back, too."""


def amend(trial: Trial) -> Trial:
    """Return the trial with what is drawn here from its seed."""
    rng = random.Random(f"retire {trial.seed}")
    chosen = rng.random()
    if trial.mode == LIVENESS:
        trial = _gently(rng, trial) if chosen < _GENTLE else trial
    elif chosen < _SCENARIOS:
        scene = LATER[rng.choice(sorted(LATER))](rng, trial)
        trial = replace(scene.trial, faults=scene.faults)
    elif chosen < _SCENARIOS + _BESIDE:
        trial = replace(trial, faults=(*trial.faults, _retires(rng, trial)))
    return _with_held_claims(random.Random(f"claim {trial.seed}"), trial)


def _retirement(rng: random.Random, who: str, at: float) -> Fault:
    return Fault("retire", who, at=max(0.0, at), seconds=_LIMIT_S * rng.choice([0.1, 1.0, 1.0, 2.0]))


def _gently(rng: random.Random, trial: Trial) -> Trial:
    """Let what is killed end in good order instead: it may take all the time that a real one has."""
    faults = [
        replace(one, kind="retire", seconds=_LIMIT_S * rng.uniform(0.5, 1.0)) if one.kind == "kill" else one
        for one in trial.faults
    ]
    return replace(trial, faults=tuple(faults))


def _retires(rng: random.Random, trial: Trial) -> Fault:
    shard = rng.randrange(trial.shards)
    roles = [f"server {shard}"] * 4 + [f"replica {shard}"] * 2 + ["coordinator"] * 2 + ["standby", "worker 0"]
    fault = _retirement(rng, rng.choice(roles), rng.uniform(0, UNTIL_S))
    # Where another fault is, this one comes soon before or after it, more often than by chance.
    timed = [one.at for one in trial.faults if one.at is not None]
    if timed and rng.random() < 0.7:
        return replace(fault, at=max(0.0, rng.choice(timed) + rng.uniform(-1.0, 1.5)))
    return fault


def _with_held_claims(rng: random.Random, trial: Trial) -> Trial:
    if not trial.standby or rng.random() >= _CLAIMS:
        return trial
    lost = [one.at for one in trial.faults if one.at is not None]
    # Not before a lease can have run out: that is when a standby claims.
    at = max(0.0, rng.choice(lost) + rng.uniform(-1.0, 4.0)) if lost else rng.uniform(0, UNTIL_S)
    seconds = rng.uniform(0.05, 0.3) if trial.mode == LIVENESS else rng.choice([0.5, 2.0, 6.0]) * rng.uniform(0.5, 1.5)
    who = rng.choice(["coordinator", "standby", "standby"])
    held = Fault("claim", who, at=at, seconds=seconds, way=rng.choice(WAYS))
    return replace(trial, faults=(*trial.faults, held))


# --- scenarios ---


def _server_retires_while_a_replica_joins(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial, rng.choice([1, 2])), spares=4, shared=False)
    start = rng.uniform(1, UNTIL_S)
    slow = Fault("delay", "server 0", at=start, seconds=3.0, factor=rng.uniform(0.1, 1.5))
    then = _retirement(rng, "server 0", start + rng.uniform(-0.3, 2))
    return Scene(trial, (Fault("kill", "replica 0", at=start), *rng.choice([(), (slow,)]), then))


def _server_retires_during_a_takeover(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial), shared=rng.random() < 0.3, shards=rng.choice([1, 2]))
    trial = replace(trial, spares=2, noise=rng.choice([trial.noise, Noise(0.02, 0.3)]))
    start = rng.uniform(1, UNTIL_S)
    who = f"server {rng.randrange(trial.shards)}"
    late = Fault("delay", who, at=start - 0.5, seconds=3.0, factor=rng.uniform(0.1, 1))
    # From before the coordinator is lost, which then may have ordered the hand-over, until after its successor decides.
    then = _retirement(rng, who, start + rng.choice([-0.1, -0.5, 0.0, 0.0]) + rng.uniform(0, 0.6))
    return Scene(trial, (*rng.choice([(), (late,)]), then, Fault("kill", "coordinator", at=start)))


def _server_and_replica_retire_at_once(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(loosely(rng, trial, rng.choice([1, 2, 2])), spares=rng.choice([0, 2, 4]), shared=rng.random() < 0.3)
    start = rng.uniform(1, UNTIL_S)
    faults = [_retirement(rng, "server 0", start), _retirement(rng, "replica 0", start + rng.uniform(-0.5, 0.5))]
    return Scene(trial, tuple(rng.sample(faults, 2)))


def _unit_retires(rng: random.Random, trial: Trial) -> Scene:
    # The coordinator hands over to its standby while its server hands over to a replica.
    trial = replace(loosely(rng, trial), shared=True, spares=rng.choice([0, 2]))
    start = rng.uniform(1, UNTIL_S)
    who = rng.choice(["standby", "replica 0", "worker 0"])
    more = [(), (), (Fault("kill", who, at=start + rng.uniform(0, 0.5)),), (_retirement(rng, who, start),)]
    return Scene(trial, (_retirement(rng, "coordinator", start), *rng.choice(more)))


def _retiring_server_is_cut_off(rng: random.Random, trial: Trial) -> Scene:
    # It may be let go, replaced, or taken for lost, and hears of none of that.
    trial = replace(loosely(rng, trial, rng.choice([1, 2])), shared=False, spares=2)
    start = rng.uniform(1, UNTIL_S)
    soon = start + rng.uniform(0, 0.5)
    others = rng.choice([(), ("coordinator",), ("coordinator", "standby"), ("replica 0",)])
    gone = [
        Fault("pause", "server 0", at=soon, seconds=rng.uniform(0.5, 6)),
        Fault("partition", "server 0", at=soon, seconds=rng.uniform(0.5, 6), others=others, way=rng.choice(WAYS)),
        Fault("kill", "server 0", at=soon),
        Fault("kill", "replica 0", at=soon),
        Fault("pause", "coordinator", at=soon, seconds=rng.uniform(0.5, 6)),
    ]
    return Scene(trial, (_retirement(rng, "server 0", start), rng.choice(gone)))


def _only_the_lost_coordinator_knew(rng: random.Random, trial: Trial) -> Scene:
    # Its standby has not heard yet that a replica was replaced by one that is gone as well.
    trial = replace(
        loosely(rng, trial), shared=False, shards=2, spares=6, noise=rng.choice([Noise(), Noise(0.02, 0.3)])
    )
    start = rng.uniform(1, UNTIL_S)
    late = Fault("delay", "standby", at=start - 0.5, seconds=rng.uniform(2, 5), factor=rng.uniform(2, 4))
    again = start + rng.uniform(0.3, 2)
    gone = rng.choice([Fault("kill", "replica 1", at=again), _retirement(rng, "replica 1", again)])
    lost = Fault("kill", "coordinator", at=again + rng.uniform(0, 1.5))
    return Scene(trial, (late, Fault("kill", "replica 1", at=start), gone, lost))


def _workers_are_heard_late(rng: random.Random, trial: Trial) -> Scene:
    # The lost coordinator had gone on beyond what its standby has heard of, and those who know take their time: the
    # promoted server is heard first.
    trial = replace(
        loosely(rng, trial), shared=True, shards=rng.choice([1, 2]), workers=max(2, trial.workers), spares=2
    )
    start = rng.uniform(1, UNTIL_S)
    ahead = Fault("delay", "standby", at=max(0.0, start - 1), seconds=rng.uniform(1, 1.2), factor=rng.uniform(0.1, 1))
    late = [
        Fault("delay", f"worker {number}", at=start + rng.uniform(-0.3, 0.1), seconds=3.0, factor=rng.uniform(0.1, 2))
        for number in range(trial.workers)
    ]
    return Scene(trial, (ahead, *late, Fault("kill", "server 0", at=start)))


def _server_is_lost_during_a_takeover(rng: random.Random, trial: Trial) -> Scene:
    # It has answered the new coordinator, which waits for another server and does not know yet all that was shown.
    trial = replace(loosely(rng, trial), shared=False, shards=rng.choice([2, 2, 3]), spares=2)
    start, behind_s, late_s = rng.uniform(1, UNTIL_S), rng.uniform(0.1, 1), rng.uniform(0.5, 2)
    lost, late = rng.sample(range(trial.shards), 2)
    ahead = Fault("delay", "standby", at=max(0.0, start - 1), seconds=1.0, factor=behind_s)
    slow = Fault("delay", f"server {late}", at=start - rng.uniform(0, 0.1), seconds=3.0, factor=late_s)
    # The one has answered as soon as the standby is heard; the other is asked, and answers, later.
    then = start + behind_s + rng.uniform(0, 2) * late_s
    who = rng.choice([f"server {lost}"] * 12 + [f"replica {lost}", f"server {late}", "standby", "worker 0"])
    gone = [Fault("kill", who, at=then)] * 8 + [
        Fault("pause", who, at=then, seconds=rng.uniform(0.5, 6)),
        _retirement(rng, who, then),
    ]
    return Scene(trial, (ahead, slow, Fault("kill", "coordinator", at=start), rng.choice(gone)))


LATER: Final[dict[str, Scenario]] = {
    "a server retires while a replica joins": _server_retires_while_a_replica_joins,
    "a server retires during a takeover": _server_retires_during_a_takeover,
    "server and replica retire at once": _server_and_replica_retire_at_once,
    "a unit retires": _unit_retires,
    "a retiring server is cut off": _retiring_server_is_cut_off,
    "only the lost coordinator knew": _only_the_lost_coordinator_knew,
    "workers are heard late": _workers_are_heard_late,
    "a server is lost during a takeover": _server_is_lost_during_a_takeover,
}
