"""Drawing a trial from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from psplatform.core.policy import Scope
from psplatform.policies.registry import make_policy, policy_names
from psplatform.simulation.faults.schedules.amending import LATER, amend
from psplatform.simulation.faults.schedules.between import BETWEEN
from psplatform.simulation.faults.schedules.burdens import BURDENED, with_burdens
from psplatform.simulation.faults.schedules.hosts import HOSTED, with_hosts
from psplatform.simulation.faults.schedules.repeats import REPEATED, with_repeats
from psplatform.simulation.faults.schedules.scenarios import CLOCKS, SCENARIOS, Scene, draw_scenario
from psplatform.simulation.faults.schedules.schedule import FLAWS, WAYS, Fault
from psplatform.simulation.faults.schedules.sums import SUMMED, at_aggregators
from psplatform.simulation.faults.schedules.trial import LIVENESS, SAFETY, Copying, Noise, Trial

Setting = tuple[str, dict[str, Any]]

_FURTHER: Final[tuple[Setting, ...]] = (
    ("ssp", {"bound": 0}),
    ("ssp", {"bound": 1, "rate": "delay-adaptive"}),
    ("backup", {"k": 1}),
    ("backup", {"k": 1, "busy": "abort"}),
    ("dssp", {"lower": 0, "credit": 2}),
    ("elastic-bsp", {"lookahead": 2, "merge": "sequential"}),
    ("delay-bounded", {"max_delay": 2}),
    ("psp", {"push": 1, "pull": 0.5}),
    ("cutoff", {"predictor": "normal", "full_rounds": 1}),
)
"""Settings beside those that every registered policy has by itself."""

_OPTIMIZERS: Final[tuple[Mapping[str, Any], ...]] = (
    {"name": "sgd", "lr": 0.1},
    {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True},
    {"name": "adam", "lr": 0.01},
    {"name": "adagrad", "lr": 0.05},
    {"name": "rmsprop", "lr": 0.005},
)

_DURATION_S: Final = 14.0
"""Seconds in which most trials would be over without faults."""

_NOISES: Final = (Noise(), Noise(0.002), Noise(0.02, 0.3), Noise(0.01, 0.1, 0.2), Noise(0.05, 1.0, 0.1))
"""The last is so bad that leases may run out by itself."""

_FROM_WORKERS: Final = 0.25
"""Share of the trials with copies in which these take gradients from the workers."""

_FABRIC: Final = 0.5
"""Share of the trials in which transfers are planned, of those whose policy decides about the whole model."""

_SCENARIOS: Final = 0.4
"""Share of the trials that follow a scenario."""


@cache  # finding entry points takes longer than drawing
def settings() -> tuple[Setting, ...]:
    """Return the policies that trials run under, with their parameters: those that come with psplatform.

    A seed means the same wherever other packages have registered policies of theirs.
    """
    return *((name, {}) for name in policy_names(own=True)), *_FURTHER


_MORE: Final = {**LATER, **HOSTED, **SUMMED, **REPEATED, **BURDENED, **BETWEEN}

SCENARIO_NAMES: Final = tuple(sorted({**SCENARIOS, **_MORE}))
"""All that a trial can be drawn with."""


def draw(seed: int, *, workload: str = "digits", options: Mapping[str, Any] | None = None, scenario: str = "") -> Trial:
    """Return the trial of that seed; one in four is of the mode ``liveness``.

    Parameters
    ----------
    scenario
        The scenario that it follows, instead of any or none.
    """
    rng = random.Random(f"trial {seed}")
    mode = LIVENESS if rng.random() < 0.25 and not scenario else SAFETY
    policy, parameters = rng.choice(settings())
    workers = rng.randint(max(1, int(parameters.get("k", 1))), 4)
    copying = _copying(rng, mode)
    leases = rng.random() < 0.6
    trial = Trial(
        seed=seed,
        mode=mode,
        workload=workload,
        options=dict(options or {}),
        policy=policy,
        parameters=parameters,
        workers=workers,
        shards=rng.randint(1, 3),
        updates=rng.randint(6, 16) * (1 if make_policy(policy, parameters).traits.exact else 2),
        batch_size=rng.choice([2, 4]),
        optimizer=rng.choice(_OPTIMIZERS),
        clip=rng.choice([None, None, None, 0.5]),
        epochs=rng.random() < 0.3,
        copying=copying,
        standby=copying is not None and rng.random() < 0.7,
        shared=rng.random() < 0.5,
        spares=rng.choice([0, 2, 6]),
        leases=leases,
        cut_every=rng.choice([0, 2, 3, 5]),
        noise=rng.choice(_NOISES[: 4 if mode == LIVENESS and leases else None]),
        late=tuple(rng.uniform(0, 10) for _ in range(rng.choice([0, 0, 1, 2]))),
    )
    if mode == LIVENESS:
        trial = amend(replace(trial, rates=_rates(rng, trial), faults=_gentle(rng, trial)))
        return with_hosts(_planned(_sourced(trial)))
    scene = _scene(rng, trial, scenario)
    rates = {**_rates(rng, scene.trial), **scene.trial.rates}
    trial = replace(scene.trial, rates=rates, faults=scene.faults)
    if scenario:
        return _planned(_sourced(trial))
    return with_burdens(with_repeats(with_hosts(_planned(_sourced(amend(trial))))))


def _scene(rng: random.Random, trial: Trial, scenario: str) -> Scene:
    if scenario in _MORE:
        return _MORE[scenario](rng, trial)
    follows = bool(scenario) or rng.random() < _SCENARIOS
    return draw_scenario(rng, trial, scenario) if follows else Scene(trial, _any(rng, trial))


def _copying(rng: random.Random, mode: str) -> Copying | None:
    replicas = rng.choice([1, 1, 2])
    chosen = rng.random()
    if chosen < 0.08 and mode == SAFETY:
        return None
    pause = rng.random() < 0.3
    if chosen < 0.3:
        return Copying(replicas, 0.0, "updates", pause)
    if chosen < 0.6:
        return Copying(replicas, float(rng.choice([1, 2, 4, 8])), "updates", pause)
    # From less than any update of these models to more than all of them together.
    return Copying(replicas, 10 ** rng.uniform(-4, 0.7), "norm", pause)


def _sourced(trial: Trial) -> Trial:
    # A stream of its own: whatever else a seed stands for stays as it was before replicas could do that.
    if trial.copying is None or random.Random(f"source {trial.seed}").random() >= _FROM_WORKERS:
        return trial
    return replace(trial, copying=replace(trial.copying, source="workers"))


def _planned(trial: Trial) -> Trial:
    # A stream of its own as well.
    traits, rng = make_policy(trial.policy, dict(trial.parameters)).traits, random.Random(f"fabric {trial.seed}")
    if traits.scope is not Scope.MODEL or rng.random() >= _FABRIC or trial.fabric:
        return trial
    kinds = ("pause",) if trial.mode == LIVENESS else ("kill", "pause")
    more = at_aggregators(rng, kinds=kinds, most=2) if traits.sums else ()
    return replace(trial, fabric=True, faults=(*trial.faults, *more))


def _rates(rng: random.Random, trial: Trial) -> dict[str, float]:
    if not trial.leases:
        return {}
    replicas = trial.copying.replicas if trial.copying is not None else 0
    names = [f"server-{shard}" for shard in range(trial.shards)]
    names += [f"replica-{shard}-{number}" for shard in range(trial.shards) for number in range(replicas)]
    return {name: 1.0 + rng.uniform(-CLOCKS, CLOCKS) for name in names if rng.random() < 0.5}


# --- faults at any time, of any kind ---


def _any(rng: random.Random, trial: Trial) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        first = _at_some_point(rng, _random_fault(rng, trial))
        faults.append(first)
        # What makes a protocol fail is mostly that something happens while it is busy with what happened before.
        faults += [_soon_after(rng, first, _random_fault(rng, trial)) for _ in range(rng.choice([0, 1, 1, 2]))]
    return tuple(faults)


def _at_some_point(rng: random.Random, fault: Fault) -> Fault:
    if rng.random() < 0.5:
        return replace(fault, at=rng.uniform(0, _DURATION_S), event=None)
    return replace(fault, at=None, event=int(10 ** rng.uniform(1, 3.2)))


def _soon_after(rng: random.Random, first: Fault, fault: Fault) -> Fault:
    if first.event is not None:
        return replace(fault, at=None, event=first.event + int(10 ** rng.uniform(0, 2)))
    start = first.at or 0.0
    return replace(fault, at=start + rng.choice([0.0, rng.uniform(0, 0.1), rng.uniform(0, 1), rng.uniform(0, 5)]))


def _random_fault(rng: random.Random, trial: Trial) -> Fault:
    kind = rng.choice(
        ["kill"] * 6 + ["pause"] * 3 + ["partition"] * 4 + ["slow", "delay", "reorder", "duplicate"] + ["storage"] * 2
    )
    if kind == "storage":
        what, how = rng.choice(["part", "manifest"]), rng.choice(FLAWS)
        return Fault(kind, at=0.0, what=what, how=how, write=rng.randint(1, 3))
    who = _role(rng, trial)
    fault = Fault(kind, who, at=0.0, seconds=rng.choice([0.3, 1.5, 4.0, 8.0]) * rng.uniform(0.5, 1.5))
    if kind == "partition":
        others = tuple({_role(rng, trial) for _ in range(rng.choice([0, 0, 1, 2]))} - {who})
        return replace(fault, others=tuple(sorted(others)), way=rng.choice(WAYS))
    if kind == "slow":
        return replace(fault, factor=rng.choice([2.0, 5.0, 20.0]))
    if kind in ("delay", "reorder", "duplicate"):
        return replace(fault, factor=rng.choice([0.05, 0.5, 2.0]))
    return fault if kind == "pause" else replace(fault, seconds=0.0)


def _role(rng: random.Random, trial: Trial) -> str:
    shard = rng.randrange(trial.shards)
    roles = [f"server {shard}"] * 4 + ["coordinator"] * 3 + [f"worker {rng.randrange(trial.workers)}"] * 2
    if trial.copying is not None:
        roles += [f"replica {shard}"] * 3
    return rng.choice(roles + ["standby"] * 2 * trial.standby)


# --- faults that leave enough alive ---


def _gentle(rng: random.Random, trial: Trial) -> tuple[Fault, ...]:
    """Return faults after which the run can still end as asked: at most one loss, and what heals by itself."""
    faults = []
    loss = _one_loss(rng, trial)
    if loss is not None:
        faults.append(_at_some_point(rng, loss))
    for _ in range(rng.randint(0, 3)):
        fault = _random_fault(rng, trial)
        if fault.kind in ("kill", "pause", "slow", "partition"):
            # Too short for a lease to run out: nobody is taken for lost.
            fault = replace(fault, kind="pause" if fault.kind == "kill" else fault.kind, seconds=rng.uniform(0.05, 0.3))
        elif fault.kind != "storage":
            fault = replace(fault, factor=rng.uniform(0.02, 0.2))
        faults.append(_at_some_point(rng, fault))
    return tuple(faults)


def _one_loss(rng: random.Random, trial: Trial) -> Fault | None:
    candidates = ["worker 1"] if trial.workers > 1 else []
    if trial.copying is not None and not trial.copying.pause:
        candidates += [f"replica {rng.randrange(trial.shards)}"]
    if trial.copying is not None and (trial.standby or not trial.shared):
        candidates += ["server 0", f"server {rng.randrange(trial.shards)}"]
    if trial.standby and (trial.copying is not None or not trial.shared):
        candidates += ["coordinator", "standby"]
    if trial.copying is not None and trial.copying.pause and not trial.spares:
        candidates = [one for one in candidates if one.startswith("worker")]
    return Fault("kill", rng.choice(candidates), at=0.0) if candidates else None
