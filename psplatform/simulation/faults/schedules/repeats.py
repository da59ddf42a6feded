"""Messages that arrive again, long after they were said, while those who said them are replaced.

A line between processes says again what was not answered, and what a process has sent may arrive after it was lost, or
was stopped for long.  So every role must tell what is old from what is new, by terms, epochs and numbers alone.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Final

from psplatform.simulation.faults.schedules.scenarios import UNTIL_S, Scenario, Scene, loosely
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import LIVENESS, Copying, Noise, Trial

_SHARE: Final = 0.06
"""Share of the trials that follow one of the scenarios here instead of what they would do."""

_LONG_S: Final = 60.0
"""Longer than any trial takes with all its faults."""


def with_repeats(trial: Trial) -> Trial:
    """Return the trial, or one in which messages arrive again, as its seed says."""
    rng = random.Random(f"repeats {trial.seed}")
    # Where there are hosts, their processes were counted for the workers that there are.
    if trial.mode == LIVENESS or trial.hosts or rng.random() >= _SHARE:
        return trial
    scene = REPEATED[rng.choice(sorted(REPEATED))](rng, trial)
    return replace(scene.trial, faults=scene.faults)


def _repeats(rng: random.Random, roles: list[str]) -> list[Fault]:
    """Return what lets messages of some of these roles arrive again, from the beginning on."""
    chosen = rng.sample(roles, min(len(roles), rng.randint(2, 4)))
    return [Fault("duplicate", who, at=0.0, seconds=_LONG_S, factor=rng.uniform(0.5, 6)) for who in chosen]


def _late(rng: random.Random, who: str, at: float) -> Fault:
    """Return what lets messages arrive out of order before `at`: some of them long after it."""
    return Fault("reorder", who, at=max(0.0, at - rng.uniform(0.3, 1.5)), seconds=2.0, factor=rng.uniform(1, 8))


def _losses(rng: random.Random, roles: list[str]) -> list[Fault]:
    """Return one loss, or two one after the other: of processes that end, or that go on when they were replaced."""
    at, faults = rng.uniform(1, UNTIL_S), []
    for _ in range(rng.randint(1, 2)):
        who, kind = rng.choice(roles), rng.choice(["kill", "kill", "pause", "partition"])
        seconds = rng.uniform(3, 9) if kind != "kill" else 0.0
        others = ("coordinator",) if kind == "partition" and who != "coordinator" else ()
        faults += [_late(rng, who, at)] * (rng.random() < 0.4)
        faults.append(Fault(kind, who, at=at, seconds=seconds, others=others))
        at += rng.choice([rng.uniform(0.05, 0.5), rng.uniform(1, 4)])
    return faults


def _repeating(rng: random.Random, trial: Trial) -> Trial:
    trial = replace(loosely(rng, trial, rng.choice([1, 1, 2])), leases=True, shared=rng.random() < 0.2, spares=6)
    trial = replace(trial, shards=rng.choice([1, 2, 2]), workers=max(2, trial.workers), epochs=rng.random() < 0.4)
    return replace(trial, clip=rng.choice([None, 0.5]), cut_every=rng.choice([0, 2, 3]), noise=Noise(0.01, 0.1))


def _servers_are_replaced(rng: random.Random, trial: Trial) -> Scene:
    trial = _repeating(rng, trial)
    again = _repeats(rng, ["server 0", "server 0", "replica 0", "coordinator", "worker 0", "worker 1"])
    return Scene(trial, (*again, *_losses(rng, ["server 0", "server 0", "replica 0"])))


def _coordinators_are_replaced(rng: random.Random, trial: Trial) -> Scene:
    trial = _repeating(rng, trial)
    again = _repeats(rng, ["coordinator", "coordinator", "standby", "server 0", "worker 0", "worker 1"])
    return Scene(trial, (*again, *_losses(rng, ["coordinator", "coordinator", "coordinator", "server 0"])))


def _workers_are_replaced(rng: random.Random, trial: Trial) -> Scene:
    trial = replace(_repeating(rng, trial), late=(rng.uniform(1, UNTIL_S),))
    again = _repeats(rng, ["worker 0", "worker 1", "coordinator", "server 0"])
    return Scene(trial, (*again, *_losses(rng, ["worker 0", "worker 1", "server 0", "coordinator"])))


def _messages_of_a_lost_server_come_late(rng: random.Random, trial: Trial) -> Scene:
    # What it says of a replica that joins comes after another has taken its place.
    trial = replace(_repeating(rng, trial), copying=replace(_bounded(rng), replicas=2))
    start = rng.uniform(1, UNTIL_S)
    then = start + rng.uniform(0.1, 2)
    faults = Fault("kill", "replica 0", at=start), _late(rng, "server 0", then), Fault("kill", "server 0", at=then)
    return Scene(trial, faults)


def _bounded(rng: random.Random) -> Copying:
    return Copying(1, float(rng.choice([1, 2, 4, 8])), "updates")


def _server_is_silent_after_a_takeover(rng: random.Random, trial: Trial) -> Scene:
    # Its lease is long, because beats were late; who takes over has not given it, and must wait for its end all the
    # same.  Or the standby has not heard yet that leases are longer now, or it is a new one that has heard of none.
    trial = replace(_repeating(rng, trial), updates=40, policy="asp", parameters={}, shared=False)
    start = rng.uniform(4, UNTIL_S)
    slow = Fault("reorder", "server 0", at=rng.choice([0.0, start - 3]), seconds=start, factor=rng.uniform(0.5, 2))
    unheard = Fault("delay", "standby", at=start - 2, seconds=2.0, factor=rng.uniform(0.5, 3))
    silent = Fault("pause", "server 0", at=start + rng.uniform(-0.4, 0.4), seconds=12.0)
    new = Fault("kill", "standby", at=start - rng.uniform(0.05, 0.6))
    known = rng.choice([(), (unheard,), (new,)])
    return Scene(trial, (slow, *known, silent, Fault("kill", "coordinator", at=start)))


def _leases_become_shorter(rng: random.Random, trial: Trial) -> Scene:
    # Late beats are forgotten after 20 seconds; what was given before lasts as long as it was given for.
    trial = replace(_repeating(rng, trial), updates=120, policy="asp", parameters={}, noise=Noise(), cut_every=0)
    until = rng.uniform(2, 4)
    slow = Fault("reorder", "server 0", at=0.0, seconds=until, factor=rng.uniform(1, 2))
    silent = Fault("pause", "server 0", at=until + rng.uniform(19, 23), seconds=12.0)
    return Scene(trial, (slow, silent))


def _promoted_server_is_alone(rng: random.Random, trial: Trial) -> Scene:
    # It may go no further than the bound before another copy has taken the place of the lost one.
    copying = replace(_bounded(rng), pause=True)
    trial = replace(trial, copying=copying, standby=True, shared=False, spares=rng.choice([0, 1]), updates=24)
    return Scene(trial, (Fault("kill", "server 0", at=rng.uniform(1, UNTIL_S)),))


def _batches_are_interrupted(rng: random.Random, trial: Trial) -> Scene:
    # A gradient is announced while its worker is told to give it up, and its batch is dealt again.
    parameters: dict[str, Any] = rng.choice([{"k": 1, "busy": "abort"}, {"k": 1}])
    trial = replace(_repeating(rng, trial), policy="backup", parameters=parameters, epochs=True, shards=2)
    trial = replace(trial, workers=rng.choice([3, 4]), noise=Noise(0.05, 1.0, 0.1), fabric=False)
    late = [Fault("delay", f"worker {number}", at=0.0, seconds=_LONG_S, factor=rng.uniform(0, 1)) for number in (0, 1)]
    return Scene(trial, (*late, *rng.choice([(), _losses(rng, ["server 0", "coordinator", "worker 0"])])))


REPEATED: Final[dict[str, Scenario]] = {
    "batches are interrupted": _batches_are_interrupted,
    "a promoted server is alone": _promoted_server_is_alone,
    "a server is silent after a takeover": _server_is_silent_after_a_takeover,
    "messages of a lost server come late": _messages_of_a_lost_server_come_late,
    "leases become shorter": _leases_become_shorter,
    "messages of servers come again": _servers_are_replaced,
    "messages of coordinators come again": _coordinators_are_replaced,
    "messages of workers come again": _workers_are_replaced,
}
