"""Tables of `psplatform.bench.papers.fabric`: all systems side by side, and what MLfabric's authors print, simulated.

R. Viswanathan and A. Akella, "Network-accelerated Distributed Machine Learning Using MLfabric", 2020, section 7.1:
Table 2, the share of dropped gradients (Figure 7), and the lag of monitors.

The figures of Table 2 do not come from the printed sizes, with which a gradient takes 1.25 times what the model takes
through an interface: with C1 and N1 a ring ends a round in 0.49 s, in which a server takes six vectors, and not 30.
Where a gradient takes 50 transfers, waiting for the slowest is what costs time.  This and what else Table 2 rests on,
but the paper does not print, is in `assumptions`.  Runs with such gradients are five times as long.  All figures of
these three tables are of the last four fifths of their runs.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Final

from psplatform.bench.papers.fabric import (
    ASP,
    COMPUTE,
    DELAY_BOUND,
    EVERY_S,
    LAG_S,
    ONE_IN_FIVE,
    PRINTED,
    RING,
    SUMMED,
    SYSTEMS,
    TICK_S,
    TRANSFER_S,
    WARM_UP,
    Figures,
    Planned,
    Play,
    Played,
    Setting,
)
from psplatform.bench.papers.scheduler import NETWORKS

Row = dict[str, Any]
Report = Callable[[Row], None]

LONG: Final = 50.0
"""What gradients take in Table 2, in transfers of the model at the full rate."""

_TIMES_AS_LONG: Final = 5
"""So much longer are runs with `LONG` gradients: about as many of them as with the printed ones."""

TABLE_2: Final[Mapping[tuple[str, str], float]] = {
    ("C1", "N1"): 1.74,
    ("C1", "N2"): 1.23,
    ("C1", "N3"): 1.42,
    ("C2", "N1"): 2.96,
    ("C2", "N2"): 2.0,
    ("C2", "N3"): 2.32,
    ("C3", "N1"): 1.90,
    ("C3", "N2"): 1.33,
    ("C3", "N3"): 1.42,
}
"""Printed: how many times faster than the ring MLfabric with a delay bound of 30 is."""

_BOUNDS: Final = {DELAY_BOUND: 0.30, 45: None, 60: None}
"""With the share of dropped gradients that is printed."""

_LAGS: Final = (LAG_S, 2.0)
_SLOWER: Final = {"N2": 0.076, ONE_IN_FIVE: 0.40}
"""Printed: by which share an iteration takes longer where monitors are 2 s late instead of 0.2 s."""


@dataclass(frozen=True)
class _Runs:
    """Runs of some virtual seconds, longer with `LONG` gradients, from some seeds; each is simulated once."""

    seconds: float
    seeds: Sequence[int]
    pool: ProcessPoolExecutor | None = None
    _known: dict[tuple[Play, Setting], Played] = field(default_factory=dict)

    def of(self, play: Play, compute: str, network: str, transfers: float = PRINTED) -> list[Played]:
        """Return the figures of one run for each seed."""
        settings = [Setting(compute, network, seed, transfers) for seed in self.seeds]
        missing = [setting for setting in settings if (play, setting) not in self._known]
        played = (map if self.pool is None else self.pool.map)(play, missing, repeat(self.seconds_with(transfers)))
        self._known.update(((play, setting), one) for setting, one in zip(missing, played, strict=True))
        return [self._known[play, setting] for setting in settings]

    def seconds_with(self, transfers: float) -> float:
        """Return how long runs are whose gradients take so many transfers."""
        return self.seconds * (_TIMES_AS_LONG if transfers == LONG else 1)


def measure(
    report: Report | None = None,
    *,
    parts: Sequence[str] = (),
    compute: Sequence[str] = tuple(COMPUTE),
    networks: Sequence[str] = tuple(NETWORKS),
    seconds: float = 60.0,
    seeds: Sequence[int] = tuple(range(1, 11)),
    processes: int = 1,
) -> dict[str, Any]:
    """Return tables, each a list of rows.

    Parameters
    ----------
    parts
        Which of `PARTS`; all of them by default.
    compute, networks
        The kinds of stragglers and of networks in `results` and `table2`.
    seconds
        Virtual time of each run; five times as much where gradients take 50 transfers.
    seeds
        Of stragglers and rates, the same for all systems; kinds of stragglers on one network have the same rates.
    processes
        So many share the runs of each system.

    Returns
    -------
    dict
        `results`: ``compute, network, system, seconds_per_30, low, high, ratio_to_ring, aggregation, late, not_sent,
        dropped, staleness_max``.  Seconds per 30 applied updates are the mean over the seeds, with the least and the
        most; the ratio is that of the ring's mean to this one.  `aggregation` is how many gradients a vector that comes
        to the server is made of.  `late` and `not_sent` are the shares of the computed gradients that were dropped when
        they had arrived, and where they were computed; `dropped` is both.  `staleness_max` is the largest of all seeds.

        `table2`: ``compute, network, ours, paper, low, high, applied, asp, ring_s, ours_s, asp_s, dropped,
        aggregation``: `ours` and `asp` are how many times faster than with the ring 30 gradients are computed, `low`
        and `high` the least and the most of `ours` with a single seed, and `applied` how many times faster 30 are
        applied.  `assumptions` comes with it.

        `dropped`, with C1 and N1: ``compute_in_transfers, bound, dropped, late, not_sent, seconds_per_30,
        staleness_max, paper``; seconds are per 30 applied updates.

        `lag`, with C1: ``compute_in_transfers, network, lag_s, seconds_per_30, low, high, slower, paper``: `slower` is
        the share by which 30 applied updates take longer than with the shortest lag.
    """
    found = dict[str, Any]()
    chosen = [(stragglers, network) for stragglers in compute for network in networks]
    # Spawned, because a fork of a process that has threads, as torch's, may never wake up.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) if processes > 1 else nullcontext() as pool:
        runs = _Runs(seconds, seeds, pool)
        for part in PARTS:
            if parts and part not in parts:
                continue
            if part == "table2":
                found["assumptions"] = assumptions(runs.seconds_with(LONG), len(seeds))
            found[part] = []
            for row in PARTS[part](runs, chosen):
                found[part].append(row)
                if report is not None:
                    report(row)
    return found


def assumptions(seconds: float, seeds: int) -> Row:
    """Return what Table 2 rests on, where runs take so many virtual seconds."""
    return {
        "compute_in_transfers": LONG,
        "transfer_s": TRANSFER_S,
        "compute_s": LONG * TRANSFER_S,
        "rates_redrawn_s": EVERY_S,
        "tick_s": TICK_S,
        "lag_s": LAG_S,
        "delay_bound": f"{DELAY_BOUND}, enforced when a gradient arrives",
        "interfaces": "each direction of each varies by itself, the server's too",
        "ring": "hosts sum what is theirs first",
        "counted": "computed gradients, dropped ones as well",
        "measured": f"the last {1 - WARM_UP:.0%} of {seeds} runs of {seconds:g} virtual seconds",
    }


def _mean(figures: Sequence[Figures]) -> Figures:
    """Return the means of the figures of several runs, and of their stalest gradients the stalest."""
    return Figures(
        statistics.fmean(one.applied_s for one in figures),
        statistics.fmean(one.computed_s for one in figures),
        statistics.fmean(one.aggregation for one in figures),
        statistics.fmean(one.late for one in figures),
        statistics.fmean(one.not_sent for one in figures),
        max(one.staleness_max for one in figures),
    )


def _results(runs: _Runs, chosen: Sequence[tuple[str, str]]) -> Iterator[Row]:
    for compute, network in chosen:
        ring_s = _mean([one.whole for one in runs.of(RING, compute, network)]).applied_s
        for system, play in SYSTEMS.items():
            figures = [one.whole for one in runs.of(play, compute, network)]
            mean = _mean(figures)
            yield {
                "compute": compute,
                "network": network,
                "system": system,
                "ratio_to_ring": ring_s / mean.applied_s,
                "seconds_per_30": mean.applied_s,
                "low": min(one.applied_s for one in figures),
                "high": max(one.applied_s for one in figures),
                "aggregation": mean.aggregation,
                "late": mean.late,
                "not_sent": mean.not_sent,
                "dropped": mean.late + mean.not_sent,
                "staleness_max": mean.staleness_max,
            }


def _table2(runs: _Runs, chosen: Sequence[tuple[str, str]]) -> Iterator[Row]:
    for compute, network in chosen:
        ring, ours, asp = ([one.later for one in runs.of(play, compute, network, LONG)] for play in (RING, SUMMED, ASP))
        single = [slow.computed_s / fast.computed_s for slow, fast in zip(ring, ours, strict=True)]
        mean, ring_s, asp_s = _mean(ours), _mean(ring).computed_s, _mean(asp).computed_s
        yield {
            "compute": compute,
            "network": network,
            "ours": ring_s / mean.computed_s,
            "paper": TABLE_2[compute, network],
            "low": min(single),
            "high": max(single),
            "applied": ring_s / mean.applied_s,
            "asp": ring_s / asp_s,
            "ring_s": ring_s,
            "ours_s": mean.computed_s,
            "asp_s": asp_s,
            "dropped": mean.late + mean.not_sent,
            "aggregation": mean.aggregation,
        }


def _dropped(runs: _Runs, _: Sequence[tuple[str, str]]) -> Iterator[Row]:
    for transfers in (PRINTED, LONG):
        for bound, paper in _BOUNDS.items():
            play = replace(SUMMED, max_delay=bound)
            mean = _mean([one.later for one in runs.of(play, "C1", "N1", transfers)])
            yield {
                "compute_in_transfers": transfers,
                "bound": bound,
                "dropped": mean.late + mean.not_sent,
                "late": mean.late,
                "not_sent": mean.not_sent,
                "seconds_per_30": mean.applied_s,
                "staleness_max": mean.staleness_max,
                "paper": paper,
            }


def _lag(runs: _Runs, _: Sequence[tuple[str, str]]) -> Iterator[Row]:
    for transfers in (PRINTED, LONG):
        for network, paper in _SLOWER.items():
            shortest_s = math.inf
            for lag_s in _LAGS:
                play = replace(SUMMED, planned=Planned(lag_s=lag_s))
                figures = [one.later for one in runs.of(play, "C1", network, transfers)]
                mean_s = _mean(figures).applied_s
                shortest_s = mean_s if lag_s == LAG_S else shortest_s
                yield {
                    "compute_in_transfers": transfers,
                    "network": network,
                    "lag_s": lag_s,
                    "seconds_per_30": mean_s,
                    "low": min(one.applied_s for one in figures),
                    "high": max(one.applied_s for one in figures),
                    "slower": mean_s / shortest_s - 1,
                    "paper": paper if lag_s != LAG_S else 0.0,
                }


Part = Callable[[_Runs, Sequence[tuple[str, str]]], Iterator[Row]]

PARTS: Final[Mapping[str, Part]] = {"results": _results, "table2": _table2, "dropped": _dropped, "lag": _lag}
"""By name, what returns the rows of a table."""
