"""What it takes until every worker has the parameters that its gradient has led to, beside what others take for that.

Gradients are there at once (`bench.tasks.wide`), so that an iteration is the exchange alone.  Ours and the rivals'
(`bench.rivals`) follow each other in rounds, in processes of their own, in an order that alternates: what the machine
does besides, it does to all.  A ratio is one of the same round.  With one worker, gloo adds up nothing.

Where parameters and gradients are sent (`comms`), they are sent in plain TCP, as those of gloo, ``actor`` and
``rpc-tcp`` are; ``rpc`` reads the memory of other processes of the host.

An iteration is one gradient of every worker, applied; where workers do not wait for each other, their mean.  What the
scheduler, the nannies and this program compute counts for ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, Final

from psplatform.bench.clusters.watched import device_of, endless, measure_run, watched
from psplatform.bench.measuring.rounds import Measured, Report, Row, in_rounds, spread
from psplatform.bench.rivals import ON_DEVICES, RIVALS, is_installed
from psplatform.bench.rivals.running import run_rival
from psplatform.bench.tasks.wide import Constant
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD

PARAMETERS: Final = (25_000_000, 1000)
WORKERS: Final = (1, 2, 4)
BASELINES: Final = ("gloo", "rpc")
BASELINES_SENT: Final = (*BASELINES, "rpc-tcp")
"""Of a setting in which parameters and gradients are sent."""
GLOO: Final = "gloo"

_LEARNING_RATE: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of ours to exchange.

    Attributes
    ----------
    policy, shards, transport, compression, device
        As of a job.
    replicated
        Whether servers have their default replicas.
    """

    policy: str = "bsp"
    shards: int = 1
    transport: Any = "auto"
    compression: Any = "none"
    device: str = "auto"
    replicated: bool = True

    @property
    def system(self) -> str:
        """What its rows are called."""
        others = [
            self.policy if self.policy != "bsp" else "",
            self.transport if self.transport != "auto" else "",
            self.compression if self.compression != "none" else "",
            "" if self.replicated else "unreplicated",
        ]
        return "-".join(["psplatform", *filter(None, others)])

    @property
    def encrypted(self) -> bool:
        """Whether processes speak over TLS: not where parameters and gradients are sent, as rivals send theirs."""
        return str(self.transport) != "comms"

    def job(self, parameters: int, workers: int, store: str) -> Job:
        """Return a job that goes on until it is stopped."""
        return Job(
            task=Constant(parameters),
            policy=self.policy,
            optimizer=SGD(lr=_LEARNING_RATE, momentum=0.0),
            workers=workers,
            shards=self.shards,
            transport=self.transport,
            compression=self.compression,
            device=self.device,
            **endless(store, replicated=self.replicated),
        )


def measure(
    report: Report | None = None,
    *,
    parameters: Sequence[int] = PARAMETERS,
    workers: Sequence[int] = WORKERS,
    setting: Setting | None = None,
    baselines: Sequence[str] | None = None,
    rounds: int = 3,
    seconds: float = 5.0,
    profile: bool = False,
) -> Row:
    """Measure ours, with and without replicas, and rivals.

    Parameters
    ----------
    baselines
        Of `psplatform.bench.rivals.RIVALS`, by default those that exchange in the same way; those that are not
        installed are left out by name.
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
        If a baseline is not known, or there is no such device.
    """
    chosen = setting or Setting()
    if baselines is None:
        baselines = BASELINES if chosen.encrypted else BASELINES_SENT
    unknown = [name for name in baselines if name not in RIVALS]
    if unknown:
        text = f"{', '.join(unknown)} cannot be compared with; choose of {', '.join(RIVALS)}"
        raise ConfigurationError(text, field="baselines")
    left_out = {name: f"{RIVALS[name]} is not installed" for name in baselines if not is_installed(name)}
    device = device_of(chosen.device)
    if device != "cpu":
        left_out |= {name: f"it was not made to exchange on {device}" for name in baselines if name not in ON_DEVICES}
    rivals = [name for name in baselines if name not in left_out]
    plain = replace(chosen, replicated=False)
    rows = []
    for width in parameters:
        for count in workers:
            ours = {one.system: partial(_ours, one, width, count, seconds) for one in (chosen, plain)}
            theirs = {name: partial(run_rival, name, count, width, seconds, device) for name in rivals}
            found = in_rounds({**ours, **theirs}, rounds, report)
            shards = {name: chosen.shards if name in ours else 1 for name in found}
            rows += [
                _row(name, width, count, shards[name], found[name], found.get(GLOO), profile=profile) for name in found
            ]
    return {"results": rows, "left_out": left_out}


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
    ratio, low, high = spread([one.ms / beside.ms for one, beside in zip(found, gloo or (), strict=False)])
    row: Row = {
        "system": system,
        "parameters": parameters,
        "workers": workers,
        "shards": shards,
        "ms": median(one.ms for one in found),
        "cpu_ms": median(one.cpu_ms for one in found),
        "ratio_to_gloo": ratio,
        "low": low,
        "high": high,
    }
    if profile:
        roles = sorted({role for one in found for role in one.by_role})
        row["cpu_ms_by_role"] = {role: median(one.by_role.get(role, 0.0) for one in found) for role in roles}
    return row


def _ours(setting: Setting, parameters: int, workers: int, seconds: float) -> Measured:
    job, processes = partial(setting.job, parameters, workers), workers + setting.shards + 1
    with watched(job, processes, encrypted=setting.encrypted) as (run, cluster):
        return measure_run(run, cluster, seconds)
