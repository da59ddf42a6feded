"""How long a shard stands still when its server's process is killed or stopped, and what is lost with it.

Real processes, real signals.  A kill is timed from the signal to the first commit that the promoted replica shows, as
seen in its segment.  The segments of both copies are mapped before: so the state that was promoted can be compared with
the replica's before, and the distance to what the dead server had last shown with the bound, both without asking the
run.  Reading takes memory bandwidth of the run's; the times include it.  A run is protected again when its log says
that it survives the loss of any one process: each shard has a replica in sync, and the coordinator a standby.

Losses are single ones: the next comes when the run is as it was before, at a random moment.
"""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from psplatform.bench.clusters.fault_target import FaultTarget, Watch
from psplatform.bench.faults.aftermath import spread
from psplatform.bench.faults.segment_reader import SegmentReader, Vectors
from psplatform.bench.measuring.steps import mean_step
from psplatform.bench.tasks.wide import Wide
from psplatform.core.plan import Stop
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.replication import Bounded, Replication

Row = dict[str, Any]
Report = Callable[[Row], None]

WORKERS: Final = 2
SPARE: Final = 2
"""Processes for new replicas while those that were killed start again."""

STEPS_IN_BOUND: Final = 5
CONFIGURATIONS: Final = (("bsp", 1), ("bsp", 3), ("asp", 1), ("asp", 3))
"""Policies and numbers of shards."""

RIVALS: Final = {
    "ray": {
        "what": "Ray actor that is restarted and reads 100 MB from disk again: the kill to its next answer",
        "seconds": [1.4, 1.7],
        "published": True,
        "source": "measured with Ray's max_restarts=-1 on two shared cores",
    },
    "torchrun": {
        "what": "torchrun --max-restarts: the kill to the next step, without reading a checkpoint",
        "seconds": [1.0, 1.2],
        "published": True,
        "source": "measured with gloo on two shared cores; three of five restarts failed or hung",
    },
}
_WARM_UP_UPDATES: Final = 40
_PAUSE_S: Final = 1.5
"""Hurting begins at a random moment within so many seconds, so that it falls anywhere between two commits."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration, and how it is hurt."""

    policy: str
    shards: int
    parameters: int
    bound: float
    kills: int
    stops: int
    seed: int


def measure(
    report: Report | None = None,
    *,
    parameters: int = 25_000_000,
    kills: int = 20,
    stops: int = 1,
    seed: int = 0,
    warm_up: int = _WARM_UP_UPDATES,
) -> Row:
    """Hurt the servers of runs under every configuration, and return the times and what was lost.

    Parameters
    ----------
    kills, stops
        SIGKILLs of all configurations together, and SIGSTOPs of each.
    warm_up
        Updates of the run that the mean step is measured in, which gives the bound.

    Returns
    -------
    dict
        ``kills, seconds, protected_again, distance_lost, bound, bounds, sigstop, rows, violations, checked, rivals``:
        `protected_again` is the time from the signal until the loss of any one process is survived again; `bounds` are
        those of a whole model by policy, `bound` is the largest of them, and each row has that of its shard.
    """
    rows: list[Row] = []
    bounds = {}
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # looking should take as little from the run as it can
    try:
        for number, (policy, shards) in enumerate(CONFIGURATIONS):
            if policy not in bounds:
                warm = _job(policy, 1, parameters, Bounded(), Stop(updates=warm_up), seed)
                bounds[policy] = STEPS_IN_BOUND * mean_step(warm)
            share = kills // len(CONFIGURATIONS) + (number < kills % len(CONFIGURATIONS))
            rows += _hurt(Setting(policy, shards, parameters, bounds[policy], share, stops, seed + number), report)
    finally:
        torch.set_num_threads(before)
    return _summary(rows, bounds)


def _job(policy: str, shards: int, parameters: int, replication: Replication, stop: Stop, seed: int) -> Job:
    return Job(
        task=Wide(parameters),
        device="cpu",
        optimizer=SGD(lr=0.01, momentum=0.9),
        policy=policy,
        workers=WORKERS,
        max_workers=WORKERS,  # a process that starts again takes no core from the others
        shards=shards,
        replication=replication,
        checkpoints=Checkpoints.never(),
        stop=stop,
        evaluate_every=None,
        torch_threads=1,
        seed=seed,
    )


def _hurt(setting: Setting, report: Report | None) -> list[Row]:
    if not setting.kills + setting.stops:
        return []
    replication = Bounded(max_divergence=setting.bound, unit="norm")
    job = _job(setting.policy, setting.shards, setting.parameters, replication, Stop(updates=10**9), setting.seed)
    rng = random.Random(setting.seed)  # noqa: S311  moments, not secrets
    # Stops come first: a coordinator that has taken over gives those it does not know the longest lease that there is.
    signals = [signal.SIGSTOP] * setting.stops + [signal.SIGKILL] * setting.kills
    rows = []
    with FaultTarget(job, WORKERS + 2 * setting.shards + SPARE) as fault_target:
        for number, sent in enumerate(signals):
            row = {
                "policy": setting.policy,
                "shards": setting.shards,
                "signal": sent.name,
                **_one(
                    fault_target, number % setting.shards, sent, rng.uniform(0.1, _PAUSE_S), setting.policy == "bsp"
                ),
            }
            rows.append(row)
            if report is not None:
                report(row)
        fault_target.run.stop()
    return rows


def _one(fault_target: FaultTarget, shard: int, sent: signal.Signals, pause_s: float, synchronous: bool) -> Row:
    """Hurt the server of one shard; return what came of it."""
    room, promoted = fault_target.room(shard), fault_target.room(shard)
    standing = fault_target.whole()
    one = standing["shards"][shard]
    server_at, replica_at = (standing["copies"][name][1] for name in (one["server"], one["in_sync"][0]))
    server, replica = fault_target.look(server_at, shard), fault_target.look(replica_at, shard)
    pid = fault_target.pid_at(server_at.address)
    time.sleep(pause_s)
    watch = Watch(replica)
    held = replica.version
    whole = replica.read(replica.place, room) == held
    began = time.monotonic()
    fault_target.send(pid, sent)
    # Where a whole iteration passes until its place is written to, reading it need not slow the first.
    (watch.wait_resumed if synchronous else watch.wait_promoted)(fault_target.standing)
    shown = replica.read(watch.place, promoted)
    watch.wait_resumed(fault_target.standing)
    told = fault_target.failover(shard, one["epoch"] + 1)
    # Versions that are lost are passed over where they are; what comes after the first commit is written over it.
    kept = watch.version if watch.version <= shown < watch.resumed else None
    # What it had taken in since it was looked at, its server may still show, or have shown just before.
    expected = room if whole and kept == held else server.find(kept)
    row = {
        "shard": shard,
        "coordinator_too": standing["lead"].address == server_at.address,
        "seconds": watch.resumed_at - began,
        "promoted_seconds": watch.promoted_at - began,
        "told_seconds": _told_seconds(fault_target, told, began),
        "protected_again_seconds": _protected_again_seconds(fault_target, told, began),
        **_lost(server, promoted, kept, told),
        "signal_seen": told["signal"],
        "state_compared": expected is not None,
        "load": os.getloadavg()[0],
    }
    same = expected is None or all(torch.equal(expected[key], promoted[key]) for key in promoted)
    broken = _broken(row, same=same)
    if sent is signal.SIGSTOP:
        fault_target.send(pid, signal.SIGCONT)
        broken += _changed(fault_target, server_at, shard, one["epoch"] + 1)
    return {**row, "violations": broken}


def _lost(server: SegmentReader, promoted: Vectors, kept: int | None, told: Row) -> Row:
    """Return what was lost: in truth, where version `kept` could be read in time, by the account, and by the log.

    What the lost server had shown and nobody had heard of yet is sent again, and the log does not tell of it as lost.
    """
    return {
        "updates_lost": told["updates_lost"],
        "updates_unconfirmed": server.version - kept - told["updates_lost"] if kept is not None else None,
        "distance_lost": _distance_lost(server, promoted, kept) if kept is not None else None,
        "estimate": server.divergence if math.isfinite(server.divergence) else None,
        "told_distance": told["distance_lost"],
        "bound": told["bound"],
    }


def _distance_lost(server: SegmentReader, promoted: Vectors, kept: int) -> float:
    """Return how far what the lost server had shown is from `promoted`, unless that goes on from there."""
    return server.distance(promoted) if kept < server.version else 0.0


def _told_seconds(fault_target: FaultTarget, told: Row, began: float) -> float:
    """Return when the coordinator knew of the first commit, from its own records."""
    lost_at = told["at"] - told["promoted_seconds"]
    return float(fault_target.standing()["began_s"] + lost_at + told["first_commit_seconds"] - began)


def _protected_again_seconds(fault_target: FaultTarget, told: Row, began: float) -> float:
    """Return when the run survived the loss of a process again, from its own records."""
    since = fault_target.protected_since(told["at"] - told["promoted_seconds"])
    return float(fault_target.standing()["began_s"] + since - began)


def _broken(row: Row, *, same: bool) -> list[str]:
    """Return what must not be, in words."""
    found = []
    if not same:
        found.append("the promoted state is not the replica's")
    lost, bound, estimate, told = (row[name] for name in ("distance_lost", "bound", "estimate", "told_distance"))
    if lost is not None and lost > bound:
        found.append(f"{lost:g} was lost, more than {bound:g}")
    if lost is not None and estimate is not None and lost > estimate:
        found.append(f"{lost:g} was lost, more than the estimate of {estimate:g}")
    if lost is not None and told is not None and row["updates_unconfirmed"] == 0 and lost > told:
        found.append(f"{lost:g} was lost, more than the {told:g} that the log tells of")
    return found


def _changed(fault_target: FaultTarget, server_at: Any, shard: int, epoch: int) -> list[str]:
    """Return what a woken server has changed, in words."""
    before = fault_target.standing()
    found = ["the woken server answers"] if fault_target.answers(server_at, shard) else []
    after = fault_target.standing()
    one = after["shards"][shard]
    if (one["server"], one["epoch"]) != (before["shards"][shard]["server"], epoch) or after["term"] != before["term"]:
        found.append("the woken server has changed who serves")
    return found


def _summary(rows: list[Row], bounds: dict[str, float]) -> Row:
    kills = [row for row in rows if row["signal"] == "SIGKILL"]
    stops = [row for row in rows if row["signal"] == "SIGSTOP"]
    return {
        "kills": len(kills),
        "seconds": spread([row["seconds"] for row in kills]),
        "protected_again": spread([row["protected_again_seconds"] for row in kills]),
        "distance_lost": {
            "max": max((row["distance_lost"] for row in rows if row["distance_lost"] is not None), default=None),
            "estimate_max": max((row["estimate"] for row in rows if row["estimate"] is not None), default=None),
        },
        "bound": max(bounds.values()),
        "bounds": bounds,
        "sigstop": {
            "stops": len(stops),
            "seconds": spread([row["seconds"] for row in stops]),
            "protected_again": spread([row["protected_again_seconds"] for row in stops]),
        },
        "checked": {
            "distance": sum(row["distance_lost"] is not None for row in rows),
            "state": sum(row["state_compared"] for row in rows),
            "of": len(rows),
        },
        "violations": sum(len(row["violations"]) for row in rows),
        "rivals": RIVALS,
        "rows": rows,
    }
