"""Partially synchronous parallelism when servers answer late: the time of as many iterations, simulated.

The setting is that of table 1 of "Partially synchronous parallelism" (PSP-SGD): 32 workers, a model in 32 blocks on as
many servers, iterations of 9.33 s that differ by 2 %, and answers to pulls that come 4 s late now and then.  The paper
says that 0.16 % of all answers do; its implementation delays one answer in twenty of the first server, which is as
many.  The base iteration is what the published times imply if they are minutes and a synchronous iteration pays
one delay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.jobs.stragglers import SlowServers
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.simulate import simulate

Row = dict[str, Any]

WORKERS: Final = 32
ITERATIONS: Final = 900
SEED: Final = 1
COMPUTE: Final = "uniform:low=9.14,high=9.52"

DELAYS: Final[dict[str, SlowServers | None]] = {
    "none": None,
    "all servers": SlowServers(tuple(range(WORKERS)), seconds=4.0, chance=1 / 640),
    "one server": SlowServers((0,), seconds=4.0, chance=1 / 20),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Gradients a block waits for, share of the blocks a worker waits for, and the published time over that of sync."""

    push: int
    pull: float
    published_ratio: float | None


SETTINGS: Final = (
    Setting(32, 1.0, 1.0),
    Setting(28, 1.0, 164.97 / 199.97),
    Setting(28, 0.9, 139.95 / 199.97),
    Setting(20, 0.75, 136.54 / 199.97),
)


def measure(report: Callable[[Row], None] | None = None, *, iterations: int = ITERATIONS) -> list[Row]:
    """Return one row per kind of delays and setting.

    Parameters
    ----------
    report
        Called with each row as soon as it is known.
    iterations
        Versions that every block reaches.

    Returns
    -------
    list of dict
        ``delays, push, pull, iterations, seconds, iteration_s, ratio_to_sync, published_ratio, events``.  The ratio is
        to the synchronous setting under the same delays.
    """
    rows = []
    for delays in DELAYS:
        sync_s = None
        for setting in SETTINGS:
            seconds, events = run(setting, delays, iterations)
            sync_s = sync_s or seconds
            row: Row = {
                "delays": delays,
                "push": setting.push,
                "pull": setting.pull,
                "iterations": iterations,
                "seconds": seconds,
                "iteration_s": seconds / iterations,
                "ratio_to_sync": seconds / sync_s,
                "published_ratio": setting.published_ratio if delays != "none" else None,
                "events": events,
            }
            rows.append(row)
            if report is not None:
                report(row)
    return rows


def run(setting: Setting, delays: str, iterations: int, *, seed: int = SEED) -> tuple[float, int]:
    """Simulate the times of one run; return how long it takes, and how many events it has."""
    job = Job(
        workload="mlp",
        device="cpu",
        options={"samples": 100},
        policy="psp",
        policy_options={"push": setting.push, "pull": setting.pull},
        workers=WORKERS,
        shards=WORKERS,
        block_elements=64,  # small enough for the perceptron to be cut into so many parts
        batch_size=1,
        seed=seed,
        stop=Stop(updates=iterations),
        slow_servers=DELAYS[delays],
    )
    done = simulate(job, Conditions(compute=COMPUTE, timing_only=True))
    return done.virtual_seconds, done.events
