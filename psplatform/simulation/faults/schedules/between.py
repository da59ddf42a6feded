"""What comes between two messages that belong together: losses timed so that one was heard and the other not.

What one process alone knew is lost with it, or comes late: of whom a batch was dealt to, of what a shard has passed
over, of who serves, of how long leases last.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from psplatform.simulation.faults.schedules.scenarios import UNTIL_S, Scenario, Scene, loosely
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import Copying, Noise, Trial


def _plainly(rng: random.Random, trial: Trial, policies: tuple[str, ...]) -> Trial:
    """Return the trial under a policy that needs no parameters, without plans for transfers."""
    trial = replace(loosely(rng, trial), policy=rng.choice(policies), parameters={}, shared=False, spares=4)
    return replace(trial, noise=Noise(0.01, 0.1), updates=24, cut_every=0)


def _slow(who: str, at: float, seconds: float, factor: float) -> Fault:
    return Fault("delay", who, at=max(0.0, at), seconds=seconds, factor=factor)


def _server_is_lost_between_two_answers(rng: random.Random, trial: Trial) -> Scene:
    # A worker has its answer, and waits for that of another shard until the lost server is replaced.
    trial = replace(_plainly(rng, trial, ("asp", "bsp", "ssp")), shards=rng.choice([2, 3]), leases=False)
    start = rng.uniform(1, UNTIL_S)
    slow = _slow("server 1", start - rng.uniform(0.0, 1.0), 3.0, rng.uniform(0.5, 3))
    return Scene(trial, (slow, Fault("kill", "server 0", at=start)))


def _batch_changes_hands_unheard_of(rng: random.Random, trial: Trial) -> Scene:
    # The one who takes over believes that a worker has a batch which another was given, when that worker was lost.
    trial = replace(_plainly(rng, trial, ("asp", "asp", "ssp")), workers=rng.choice([2, 3]), epochs=True, leases=False)
    start = rng.uniform(1, UNTIL_S)
    behind = _slow("standby", start - 0.3, 2.0, rng.uniform(1, 3))
    lost = Fault("kill", "worker 0", at=start)
    then = Fault("kill", "coordinator", at=start + rng.uniform(0.2, 2))
    return Scene(trial, (behind, lost, then))


def _batch_was_dealt_unheard_of(rng: random.Random, trial: Trial) -> Scene:
    # Whose batch it is says so late: it may have been dealt to another meanwhile, whose gradient comes first.
    trial = replace(_plainly(rng, trial, ("bsp", "bsp", "ssp", "asp")), workers=rng.choice([2, 3, 4]), epochs=True)
    trial = replace(trial, leases=False, shards=1)
    start = rng.uniform(1, UNTIL_S)
    behind = _slow("standby", start - rng.uniform(0.1, 0.8), 1.0, rng.uniform(0.2, 1.5))
    late = [
        _slow(f"worker {number}", start + rng.uniform(-0.2, 0.1), 3.0, rng.uniform(0.5, 4))
        for number in rng.sample(range(trial.workers), rng.choice([1, 1, 2]))
    ]
    return Scene(trial, (behind, *late, Fault("kill", "coordinator", at=start)))


def _shard_has_passed_over_unheard_of(rng: random.Random, trial: Trial) -> Scene:
    # A replica that lags is promoted by a coordinator that is lost before its standby hears of what was lost.
    trial = replace(_plainly(rng, trial, ("asp", "asp", "ssp")), shards=rng.choice([1, 1, 2]), leases=False)
    trial = replace(trial, copying=Copying(1, float(rng.choice([4, 8])), "updates"), workers=max(2, trial.workers))
    start = rng.uniform(2, UNTIL_S)
    lags = _slow("replica 0", start - 1.5, 1.5, rng.uniform(0.5, 2))
    behind = _slow("standby", start - rng.uniform(0.5, 2), 4.0, rng.uniform(2, 5))
    then = Fault("kill", "coordinator", at=start + rng.uniform(0.1, 3))
    return Scene(trial, (lags, behind, Fault("kill", "server 0", at=start), then))


def _shown_by_one_shard_alone(rng: random.Random, trial: Trial) -> Scene:
    # What the lost server has shown is still open, because another shard is slow: it is lost, whatever workers have.
    trial = replace(_plainly(rng, trial, ("asp", "ssp", "bsp")), shards=2, leases=False, workers=max(2, trial.workers))
    trial = replace(trial, copying=Copying(1, float(rng.choice([2, 4, 8])), "updates"))
    start = rng.uniform(2, UNTIL_S)
    lags = _slow("replica 0", start - 1.5, 1.5, rng.uniform(0.5, 2))
    slow = _slow("server 1", start - rng.uniform(0.2, 1.0), 2.0, rng.uniform(0.2, 2))
    return Scene(trial, (lags, slow, Fault("kill", "server 0", at=start)))


def _promotion_under_a_takeover(rng: random.Random, trial: Trial) -> Scene:
    # Ordered by a coordinator that is lost, or by the one that takes over: the new server hears of it late.
    trial = replace(_plainly(rng, trial, ("asp", "bsp")), shards=rng.choice([1, 2]), leases=False)
    trial = replace(trial, copying=Copying(rng.choice([1, 2]), float(rng.choice([2, 8])), "updates"))
    start = rng.uniform(1, UNTIL_S)
    slow = _slow("replica 0", start - 0.5, 3.0, rng.uniform(0.1, 1))
    gone = Fault("kill", "server 0", at=start), Fault("kill", "coordinator", at=start + rng.uniform(-0.2, 0.8))
    again = Fault("kill", rng.choice(["coordinator", "replica 0"]), at=start + rng.uniform(0.5, 2))
    return Scene(trial, (slow, *gone, *rng.choice([(), (again,)])))


BETWEEN: Final[dict[str, Scenario]] = {
    "a server is lost between two answers": _server_is_lost_between_two_answers,
    "a batch changes hands, unheard of": _batch_changes_hands_unheard_of,
    "a batch was dealt, unheard of": _batch_was_dealt_unheard_of,
    "a shard has passed over, unheard of": _shard_has_passed_over_unheard_of,
    "shown by one shard alone": _shown_by_one_shard_alone,
    "a promotion under a takeover": _promotion_under_a_takeover,
}
