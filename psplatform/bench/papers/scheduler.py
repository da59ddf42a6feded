"""What planning transfers costs: MLfabric's ordering and grouping, beside the figures printed for its own scheduler.

R. Viswanathan and A. Akella, "Network-accelerated Distributed Machine Learning Using MLfabric", 2020, section 7.4: half
as many hosts as updates, deadlines drawn evenly from 1 to twice as many as there are updates, three aggregators; in
C++, on a machine that is not this one.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from numpy.random import Generator, default_rng

from psplatform.core.transfers import Offer
from psplatform.network.grouping import group
from psplatform.network.ordering import order
from psplatform.network.rates import BYTES_PER_GIGABIT, Rates
from psplatform.network.state import Interface, NetworkState

Row = dict[str, Any]

PAPER_MS: Final[Mapping[int, float]] = {10: 5.0, 100: 30.0, 500: 440.0, 1000: 1460.0}
"""By the number of updates; for 10 the paper says that it is less."""

NETWORKS: Final[Mapping[str, tuple[tuple[float, float], ...]]] = {
    "N1": ((5.0, 0.1), (10.0, 0.9)),
    "N2": ((2.5, 0.1), (3.3, 0.1), (5.0, 0.1), (10.0, 0.7)),
    "N3": ((1.0, 0.5), (10.0, 0.5)),
}
"""Gigabits per second of each direction of an interface with their chances, by the paper's names (section 7)."""

RATES: Final = {"equal": ((10.0, 1.0),), "N2": NETWORKS["N2"], "N3": NETWORKS["N3"]}
"""Those that plans are timed with."""

_AGGREGATORS: Final = 3
_GRADIENT_BYTES: Final = 100e6
_ROUNDS: Final = 7


def measure(
    report: Callable[[Row], None] | None = None, *, updates: Sequence[int] = tuple(PAPER_MS), seed: int = 0
) -> list[Row]:
    """Return the CPU time of one plan, the median of some drawn cases, by number of updates and kind of rates.

    Returns
    -------
    list of dict
        ``updates, rates, cpu_ms, cpu_ms_max, dropped, aggregation, paper_ms, growth``: the share that is dropped, the
        updates per transfer into the server, and the power of the number of updates with which the time has grown since
        the row before.
    """
    rows: list[Row] = []
    for rates in RATES:
        before: Row | None = None
        for count in updates:
            row = _measured(count, rates, seed)
            if before is not None and count != before["updates"] and min(row["cpu_ms"], before["cpu_ms"]) > 0:
                row["growth"] = math.log(row["cpu_ms"] / before["cpu_ms"]) / math.log(count / before["updates"])
            before = row
            rows.append(row)
            if report is not None:
                report(row)
    return rows


def _measured(count: int, rates: str, seed: int) -> Row:
    seconds, dropped, sent, transfers = [], 0, 0, 0
    for number in range(_ROUNDS):
        offers, state, aggregators = _case(count, rates, default_rng((seed, count, number)))
        gc.collect()
        began = time.process_time()
        ordered = order(offers, state, [("server", _GRADIENT_BYTES)], 0.0)
        groups = group(ordered, aggregators).groups
        seconds.append(time.process_time() - began)
        dropped += len(ordered.dropped)
        sent += len(ordered.kept)
        transfers += len(groups)
    return {
        "updates": count,
        "rates": rates,
        "cpu_ms": 1000 * statistics.median(seconds),
        "cpu_ms_max": 1000 * max(seconds),
        "dropped": dropped / (count * _ROUNDS),
        "aggregation": sent / transfers,
        "paper_ms": PAPER_MS.get(count),
        "growth": None,
    }


def _case(count: int, rates: str, rng: Generator) -> tuple[list[Offer], NetworkState, list[str]]:
    hosts = [f"host {number}" for number in range(max(1, count // 2))]
    gigabits, chances = zip(*RATES[rates], strict=True)

    def drawn() -> Rates:
        return Rates.steady(BYTES_PER_GIGABIT * float(rng.choice(gigabits, p=chances)))

    interfaces = {host: Interface(drawn(), drawn()) for host in hosts}
    interfaces["server"] = Interface(*(Rates.steady(10 * BYTES_PER_GIGABIT),) * 2)
    offers = [Offer(key, hosts[key % len(hosts)], int(rng.integers(1, 2 * count + 1))) for key in range(count)]
    return (
        offers,
        NetworkState(interfaces),
        [str(one) for one in rng.choice(hosts, min(_AGGREGATORS, len(hosts)), replace=False)],
    )
