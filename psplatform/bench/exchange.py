"""What it takes until every worker has the parameters that its gradient has led to, beside what others take for that.

Gradients are there at once (`bench.tasks.wide`), so that an iteration is the exchange alone.  Ours and the rivals'
(`bench.rivals`) follow each other in rounds, in processes of their own, in an order that alternates: what the machine
does besides, it does to all.  A ratio is one of the same round.  With one worker, gloo adds up nothing.

An iteration is one gradient of every worker, applied; where workers do not wait for each other, their mean.  What the
scheduler, the nannies and this program compute counts for ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

from psplatform.bench.host import cpu_seconds
from psplatform.bench.rivals import RIVALS, is_installed
from psplatform.bench.tasks.wide import Constant
from psplatform.client.clusters.embedded import end_cluster, start_cluster
from psplatform.client.clusters.forking import BEFORE_START
from psplatform.client.launch import train
from psplatform.client.run import Run
from psplatform.core.plan import Stop
from psplatform.errors import ClusterError, ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.replication import NoReplication

Row = dict[str, Any]
Report = Callable[[Row], None]

PARAMETERS: Final = (25_000_000, 1000)
WORKERS: Final = (1, 2, 4)
BASELINES: Final = ("gloo", "rpc")
GLOO: Final = "gloo"

_WARM_UP: Final = 20
"""Iterations before those that count: segments are touched, and a standby is made, meanwhile."""

_FEWEST: Final = 10
_POLL_S: Final = 0.1
_LIMIT_S: Final = 240.0
_LONGEST_S: Final = 24 * 3600.0
_LEARNING_RATE: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of ours to exchange.

    Attributes
    ----------
    policy, shards, transport, device
        As of a job.
    replicated
        Whether servers have their default replicas.
    """

    policy: str = "bsp"
    shards: int = 1
    transport: Any = "auto"
    device: str = "auto"
    replicated: bool = True

    @property
    def system(self) -> str:
        """What its rows are called."""
        others = [
            self.policy if self.policy != "bsp" else "",
            self.transport if self.transport != "auto" else "",
            "" if self.replicated else "unreplicated",
        ]
        return "-".join(["psplatform", *filter(None, others)])

    def job(self, parameters: int, workers: int, store: str) -> Job:
        """Return a job that goes on until it is stopped."""
        return Job(
            task=Constant(parameters),
            policy=self.policy,
            optimizer=SGD(lr=_LEARNING_RATE, momentum=0.0),
            workers=workers,
            shards=self.shards,
            transport=self.transport,
            device=self.device,
            stop=Stop(seconds=_LONGEST_S),
            evaluate_every=None,
            torch_threads=1,
            store=store,
            **({} if self.replicated else {"replication": NoReplication()}),
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement.

    Attributes
    ----------
    ms
        Of one iteration: of a gradient of each worker.
    cpu_ms
        What all cores compute in it.
    by_role
        The same by role of the process, if known.
    """

    ms: float
    cpu_ms: float
    by_role: Mapping[str, float] = field(default_factory=dict)


def measure(
    report: Report | None = None,
    *,
    parameters: Sequence[int] = PARAMETERS,
    workers: Sequence[int] = WORKERS,
    setting: Setting | None = None,
    baselines: Sequence[str] = BASELINES,
    rounds: int = 3,
    seconds: float = 5.0,
    profile: bool = False,
) -> Row:
    """Measure ours, with and without replicas, and rivals.

    Parameters
    ----------
    baselines
        Of `psplatform.bench.rivals.RIVALS`; those that are not installed are left out by name.
    rounds
        In which each system is measured once.
    seconds
        Of each measurement; starting takes about as long again.
    profile
        Whether to tell for ours which processes compute, by role.

    Returns
    -------
    dict
        ``results``, for each system, width and number of workers: ``ms`` and ``cpu_ms`` of one iteration, medians of
        the rounds, ``ratio_to_gloo``, the median of those of the rounds, and between which values those lie, ``low``
        and ``high``; and ``left_out``, a reason by name.

    Raises
    ------
    ConfigurationError
        If a baseline is not known.
    """
    chosen = setting or Setting()
    unknown = [name for name in baselines if name not in RIVALS]
    if unknown:
        text = f"{', '.join(unknown)} cannot be compared with; choose of {', '.join(RIVALS)}"
        raise ConfigurationError(text, field="baselines")
    left_out = {name: f"{RIVALS[name]} is not installed" for name in baselines if not is_installed(name)}
    rivals = [name for name in baselines if name not in left_out]
    plain = replace(chosen, replicated=False)
    rows = []
    for width in parameters:
        for count in workers:
            ours = {one.system: partial(_ours, one, width, count, seconds) for one in (chosen, plain)}
            theirs = {name: partial(_rival, name, width, count, seconds) for name in rivals}
            found = _in_rounds({**ours, **theirs}, rounds, report)
            shards = {name: chosen.shards if name in ours else 1 for name in found}
            rows += [
                _row(name, width, count, shards[name], found[name], found.get(GLOO), profile=profile) for name in found
            ]
    return {"results": rows, "left_out": left_out}


def _in_rounds(
    systems: Mapping[str, Callable[[], Measured]], rounds: int, report: Report | None
) -> dict[str, list[Measured]]:
    found = defaultdict[str, list[Measured]](list)
    for number in range(rounds):
        for name, measure_one in reversed(list(systems.items())) if number % 2 else systems.items():
            found[name].append(measure_one())
            if report is not None:
                report({"round": number + 1, "system": name, "ms": found[name][-1].ms})
    return {name: found[name] for name in systems}


def _row(
    system: str,
    parameters: int,
    workers: int,
    shards: int,
    found: Sequence[Measured],
    gloo: Sequence[Measured] | None,
    *,
    profile: bool,
) -> Row:
    ratios = sorted(one.ms / beside.ms for one, beside in zip(found, gloo or (), strict=False))
    row: Row = {
        "system": system,
        "parameters": parameters,
        "workers": workers,
        "shards": shards,
        "ms": median(one.ms for one in found),
        "cpu_ms": median(one.cpu_ms for one in found),
        "ratio_to_gloo": median(ratios) if ratios else None,
        "low": ratios[0] if ratios else None,
        "high": ratios[-1] if ratios else None,
    }
    if profile:
        roles = sorted({role for one in found for role in one.by_role})
        row["cpu_ms_by_role"] = {role: median(one.by_role.get(role, 0.0) for one in found) for role in roles}
    return row


def _rival(name: str, parameters: int, workers: int, seconds: float) -> Measured:
    arguments = ["-m", "psplatform.bench.rivals", name, str(workers), str(parameters), str(seconds)]
    environment = {**BEFORE_START, **os.environ}  # as our own processes have it
    try:
        done = subprocess.run(  # noqa: S603  our own module
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S + seconds,
            check=True,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        text = f"{name} did not end within {_LIMIT_S + seconds:g} s; leave it out of --baselines"
        raise ClusterError(text) from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ClusterError(f"{name} failed ({last}); leave it out of --baselines") from error
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def _ours(setting: Setting, parameters: int, workers: int, seconds: float) -> Measured:
    cluster, client = start_cluster(workers + setting.shards + 1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = train(setting.job(parameters, workers, str(Path(folder) / "run.zarr")), client)
            try:
                return _watch(run, cluster, seconds)
            finally:
                run.stop("it was measured")
                run.wait(_LIMIT_S)
                run.close()
    finally:
        end_cluster(client, cluster)


def _watch(run: Run, cluster: Any, seconds: float) -> Measured:
    give_up_at = time.monotonic() + _LIMIT_S + seconds
    _await_iterations(run, _WARM_UP, give_up_at)
    roles = _roles(run, cluster)
    began, before, computed = time.perf_counter(), _iterations(run), _computed(roles)
    time.sleep(seconds)
    _await_iterations(run, before + _FEWEST, give_up_at)
    made, lasted_s, after = _iterations(run) - before, time.perf_counter() - began, _computed(roles)
    by_role = {role: (after[role] - computed[role]) / made * 1e3 for role in roles}
    return Measured(lasted_s / made * 1e3, sum(by_role.values()), by_role)


def _await_iterations(run: Run, count: float, give_up_at: float) -> None:
    while _iterations(run) < count:
        if time.monotonic() > give_up_at:
            raise ClusterError(f"there were no {count:.0f} iterations within {_LIMIT_S:g} s; choose fewer parameters")
        time.sleep(_POLL_S)


def _iterations(run: Run) -> float:
    """Return how many gradients of each worker have been applied, whole."""
    status = run.status()
    summary = status["summary"] or {}
    if status.get("failure") is not None:
        raise status["failure"]
    if not summary.get("applied"):
        return 0.0
    workers = sum(one["status"] not in ("lost", "left") for one in summary["slots"].values())
    if workers != summary["workers"]:
        return 0.0  # not all are there yet; where one was lost, the limit is waited for
    return float(summary["applied"] / summary.get("blocks", 1) / workers)


def _roles(run: Run, cluster: Any) -> dict[str, list[int]]:
    """Return the processes of the cluster by the roles in them; this one has the scheduler and the nannies."""
    names = defaultdict[str, set[str]](set)
    for role, address in run.roles().items():
        names[address].add(role.partition("-")[0])
    found = defaultdict[str, list[int]](list)
    for nanny in cluster.workers.values():
        if nanny.pid is not None:
            found["+".join(sorted(names[nanny.worker_address])) or "idle"].append(nanny.pid)
    return {**found, "cluster": [os.getpid()]}


def _computed(roles: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {role: sum(cpu_seconds(pid) for pid in pids) for role, pids in roles.items()}
