"""A hundred faults in one run: whether it survives them, how long each takes it, and whether anything grows.

Processes are killed and stopped, all processes of a host killed, and the scheduler stopped, by a seed, each when the
run is whole again or its time is up.  What is measured comes from the run's log and from looking at its processes.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from psplatform.bench.clusters.group_cluster import GROUPS, GroupCluster, GroupKilled, Signalled
from psplatform.bench.faults.aftermath import Row, shown_in_vain, spread
from psplatform.bench.faults.census import census, entries, growth, segments_of
from psplatform.bench.faults.drill import Drill, Fault
from psplatform.bench.faults.onlooker import Look
from psplatform.bench.faults.weak_points import host_of, itself, roles_at
from psplatform.core.plan import Stop
from psplatform.errors import ClusterError, ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.replication import Bounded

Report = Callable[[Row], None]

KINDS: Final = ("kill", "stop", "host", "scheduler")
_WEIGHTS: Final = {"kill": 12, "stop": 3, "host": 3, "scheduler": 2}
_ROLES: Final = ("coordinator", "server", "replica", "standby", "worker")
_SHARDS: Final = 2
_STOPPED_S: Final = (3.0, 20.0)
"""Shorter than a process needs to be given up, and longer."""

_SCHEDULER_S: Final = (2.0, 8.0)
_HOST_DOWN_S: Final = 5.0
_SPREAD_S: Final = 5.0
"""For roles to move apart; where they do not, every fault takes so much longer."""

_PAUSE_S: Final = 1.5
"""A fault comes at a random moment within so many seconds, so that it falls anywhere between two commits."""

_SHARED: Final = (Path("/dev/shm"), Path(tempfile.gettempdir()))  # noqa: S108  where segments lie
_TRIES: Final = 20


def measure(
    report: Report | None = None,
    *,
    faults: int = 100,
    seed: int = 0,
    processes: int = 3,
    kinds: Sequence[str] = KINDS,
    settle_s: float = 120.0,
    gradient_s: float = 0.05,
) -> Row:
    """Inflict so many faults on a training of digits, and return what came of them.

    Parameters
    ----------
    processes
        Dask workers in each of three groups that stand for hosts.
    kinds
        Of faults, of `KINDS`.
    settle_s
        How long the run may take to become whole; after that the next fault comes all the same.

    Returns
    -------
    dict
        ``faults, survived, unprotected, first_commit, protected_again, growth, flat, loss, violations, runs, rows``.

    Raises
    ------
    ConfigurationError
        If a kind of fault is unknown.
    """
    if unknown := [one for one in kinds if one not in KINDS]:
        text = f"a soak has faults of the kinds {', '.join(KINDS)}, not {unknown[0]!r}"
        raise ConfigurationError(text, field="kinds")
    chance = random.Random(seed)  # noqa: S311  moments, not secrets
    rows: list[Row] = []
    looks: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="psplatform-bench-") as name:
        folder = Path(name)
        with (
            GroupCluster(folder, processes) as cluster,
            Drill(cluster, _job(gradient_s), folder, hosts=host_of, settle_s=settle_s, spread_s=_SPREAD_S) as drill,
        ):
            drill.begin()
            ended = ""
            try:
                for number in range(1, faults + 1):
                    looks.append(_count(drill, cluster))
                    drill.watch(chance.uniform(0.1, _PAUSE_S))
                    rows.append(drill.hurt(_draw(chance, kinds, drill, cluster)))
                    if report is not None:
                        report({"fault": number, **_short(rows[-1])})
                looks.append(_count(drill, cluster))
            except ClusterError as error:  # what has been measured until then is told
                ended = f"the soak ended after {len(rows)} faults: {error}"
            runs = drill.finish()
    found = _summary(rows, looks, runs)
    return {**found, "violations": [ended, *found["violations"]]} if ended else found


def _job(gradient_s: float) -> Job:
    return Job(
        workload="digits",
        device="cpu",
        policy="asp",
        workers=2,
        max_workers=2,  # what is held grows with their number
        shards=_SHARDS,
        replication=Bounded(),
        checkpoints=Checkpoints(every_seconds=30),
        stragglers=f"constant:seconds={gradient_s}",
        stop=Stop(updates=10**9),
        torch_threads=1,
    )


def _draw(chance: random.Random, kinds: Sequence[str], drill: Drill, cluster: GroupCluster) -> Fault:
    """Return a fault, of a process that is there."""
    kind = chance.choices(kinds, [_WEIGHTS[one] for one in kinds])[0]
    if kind == "host":
        return GroupKilled(cluster, chance.choice(GROUPS), _HOST_DOWN_S)
    if kind == "scheduler":
        seconds = chance.uniform(*_SCHEDULER_S)
        return Signalled(cluster.scheduler_pid, f"scheduler stopped for {seconds:.1f} s", "", seconds)
    seconds = chance.uniform(*_STOPPED_S) if kind == "stop" else 0.0
    wanted = chance.choice(_ROLES)
    for _ in range(_TRIES):
        role, address = chance.choice(_those(wanted, drill.whole()))
        try:
            pid = cluster.pid_at(address)
        except ClusterError:
            drill.watch(1.0)
            continue
        return Signalled(pid, f"{role} {f'stopped for {seconds:.1f} s' if seconds else 'killed'}", address, seconds)
    raise ClusterError(f"the process of a {wanted} was not found in {_TRIES} looks")


def _those(wanted: str, look: Look) -> list[tuple[str, str]]:
    """Return the roles of a kind with their addresses; the coordinator's, where there are none."""
    found = [one for one in _placed(look) if one[0].startswith(wanted)]
    return found or [("coordinator", look.roles["coordinator"])]


def _placed(look: Look) -> list[tuple[str, str]]:
    places = sorted(set(look.roles.values()))
    return [(role, place) for place in places for role in roles_at(look.standing, look.roles, itself, place)]


def _count(drill: Drill, cluster: GroupCluster) -> dict[str, float]:
    """Return what the run holds now."""
    look = drill.whole()
    pids: dict[str, int] = {}
    known, scheduler = {}, {}
    try:
        known = cluster.pids()
        pids = {role: known[address] for role, address in _placed(look) if address in known}
        scheduler = cluster.client.run_on_scheduler(entries)
    except (ClusterError, OSError, TimeoutError):
        pass  # one look of many is less complete
    pids["scheduler"] = cluster.scheduler_pid
    everybody = {*known.values(), cluster.scheduler_pid}
    return census(pids, scheduler, segments_of(drill.run_id, _SHARED), everybody)


def _short(row: Row) -> Row:
    names = ("next_commit_s", "pause_s", "lost", "safe_again_s", "survived")
    return {"what": row["fault"], **{name: row[name] for name in names}}


def _summary(rows: list[Row], looks: list[dict[str, float]], runs: list[Row]) -> Row:
    kills = [row for row in rows if "killed" in row["fault"] and row["failovers"]]
    stops = [row for row in rows if "stopped" in row["fault"] and row["failovers"]]
    found = growth(looks)
    losses = [loss for run in runs for loss in run["losses"]]
    seconds = sum(run["seconds"] for run in runs)
    return {
        "faults": len(rows),
        "survived": sum(row["survived"] for row in rows),
        "unprotected": {
            "shards": _share(runs, "bare_s", seconds),
            "any_process": _share(runs, "unsafe_s", seconds),
            "any_host": _share(runs, "unspread_s", seconds),
        },
        "first_commit": spread(_first_commits(kills)),
        "first_commit_after_stop": spread(_first_commits(stops)),
        "protected_again": spread([row["safe_again_s"] for row in rows if row["safe_again_s"]]),
        "never_whole_again": sum(row["survived"] and not row["whole_after"] for row in rows),
        "lost_most": max((row["lost"] for row in rows), default=0),
        "loss": {"first": losses[0] if losses else None, "last": losses[-1] if losses else None},
        "growth": found,
        "flat": all(one["flat"] for one in found.values()),
        "violations": _violations(rows, runs),
        "runs": runs,
        "rows": rows,
    }


def _share(runs: list[Row], what: str, seconds: float) -> float | None:
    return sum(run[what] for run in runs) / seconds if seconds else None


def _first_commits(rows: list[Row]) -> list[float]:
    """Return for each fault the seconds until every role that was taken over had made its first commit."""
    return [
        max(one["seconds"] for one in row["failovers"])
        for row in rows
        if all(one["seconds"] is not None for one in row["failovers"])
    ]


def _violations(rows: list[Row], runs: list[Row]) -> list[str]:
    """Return in words what must not be."""
    found = [f"{row['fault']}: {text}" for row in rows for text in row["beyond_bound"]]
    for run in runs:
        found += run["back"]
        found += shown_in_vain(run["forgotten"], [row["failovers"] for row in rows], _SHARDS)
    return found
