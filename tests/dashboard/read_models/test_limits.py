"""However long a run and whatever its policy names, rows stay small and extremes stay in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from psplatform.dashboard.read_models.batches import Batch, Clock, batches
from psplatform.dashboard.read_models.convergence import Convergence
from psplatform.dashboard.read_models.counts import MOST_KEYS, MOST_STRETCHES, CountsOverTime
from psplatform.dashboard.read_models.decisions import MOST_FIGURES, Decisions
from psplatform.dashboard.read_models.delays import StalenessOverTime
from psplatform.dashboard.read_models.divergence import MOST_SHARDS, Divergence
from psplatform.dashboard.read_models.drops import Drops
from psplatform.dashboard.read_models.envelopes import MOST_BINS, Envelope
from psplatform.dashboard.read_models.failures import NEWEST, Failures
from psplatform.dashboard.read_models.network import EXACT, POINTS, Network
from psplatform.telemetry.log.segments import Record

TOTAL = 60_000
SPIKE = 41_234


def _batched(records: Sequence[Record], size: int = 4096) -> Iterator[Batch]:
    clock = Clock()
    for begin in range(0, len(records), size):
        for batch in batches(records[begin : begin + size], clock):
            clock = batch.clock
            yield batch


def _commit(n: int, **changes: object) -> Record:
    staleness = [99 if n == SPIKE else 1]
    record = {"kind": "commit", "at": n / 8, "version": n, "slots": [0], "staleness": staleness, "rate": 1.0}
    return record | {"loss": 1e6 if n == SPIKE else 1.0} | changes


def test_a_single_spike_is_in_the_curve_of_a_long_run() -> None:
    """Of loss and of staleness, where they were, and the commits are all counted."""
    convergence, staleness = Convergence(), StalenessOverTime()
    for batch in _batched([_commit(n) for n in range(TOTAL)]):
        convergence.take(batch)
        staleness.take(batch)
    for curve, spike in ((convergence.rows.training, 1e6), (staleness.rows.staleness, 99)):
        assert MOST_BINS // 2 <= len(curve) <= MOST_BINS
        assert curve.high.max() == spike
        place = int(curve.high.argmax())
        assert curve.version[place - 1] < SPIKE <= curve.version[place]
        assert np.all(np.delete(curve.high, place) == 1)
    counted = convergence.rows.commits.by_key["commits"]
    assert (len(counted) <= MOST_STRETCHES, counted.sum()) == (True, TOTAL)


def test_a_single_slow_transfer_is_in_the_curve_of_a_long_run() -> None:
    """And vectors of any number of gradients are counted, the large ones in bins."""
    network = Network()
    records = [
        {"kind": kind, "at": n / 8, "slots": [0] * (n % 200), "took_s": 99.0 if n == SPIKE else 1.0, "planned_s": 1.0,
         "host": "a", "relay": None, "sent": True} for n in range(TOTAL) for kind in ("transfer", "pull")
    ]  # fmt: skip
    for batch in _batched(records):
        network.take(batch)
    rows = network.rows
    for seconds in (rows.gradients, rows.parameters):
        assert POINTS // 2 <= len(seconds.took) <= POINTS
        place = int(seconds.took.high.argmax())
        assert seconds.took.high[place] == 99
        assert seconds.took.at[place - 1] < SPIKE / 8 <= seconds.took.at[place]
        assert np.all(seconds.planned.high == 1)
    assert list(rows.sizes) == [*range(EXACT), 64, 128]
    assert sum(rows.sizes.values()) == TOTAL


@pytest.mark.parametrize("size", [7, 4096])
def test_a_policy_may_put_figures_into_reasons_and_names(size: int) -> None:
    """Keys are bounded: of reasons the rest is counted together, of figures the first have curves."""
    drops, decisions = Drops(), Decisions()
    where = {"slot": 0, "version": 1, "label": 0, "detail": None}
    records = [{"kind": "dropped", "at": 1.0, "reason": f"stale by {n}", **where} for n in range(2000)]
    for batch in _batched([*records, *(_commit(n, decision={f"k{n}": 1.0}) for n in range(2000))], size):
        drops.take(batch)
        decisions.take(batch)
    rows = drops.rows
    assert len(rows.over_time.by_key) == len(rows.by_worker[0]) == MOST_KEYS
    assert rows.by_worker[0]["other"] == 2000 - (MOST_KEYS - 1)
    assert [one.reason for one in rows.newest] == [f"stale by {n}" for n in range(1999, 1899, -1)]
    assert [one.version for one in decisions.rows.newest] == list(range(1999, 1899, -1))
    assert list(decisions.rows.figures) == sorted(f"k{n}" for n in range(MOST_FIGURES))


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_which_figures_there_is_room_for_does_not_depend_on_the_batches(size: int) -> None:
    """Those that came first, not those that are first in the alphabet."""
    decisions = Decisions()
    for batch in _batched([_commit(n, decision={f"k{99 - n}": 1.0}) for n in range(40)], size):
        decisions.take(batch)
    assert sorted(decisions.rows.figures) == [f"k{n}" for n in range(100 - MOST_FIGURES, 100)]


def test_counts_have_no_more_keys_than_stated() -> None:
    """The key that takes the rest is one of them."""
    counts = CountsOverTime()
    for n in range(3 * MOST_KEYS):
        counts.add(str(n), [float(n)])
    assert len(counts.rows.by_key) == MOST_KEYS
    assert counts.rows.by_key["other"].sum() == 2 * MOST_KEYS + 1
    assert sum(one.sum() for one in counts.rows.by_key.values()) == 3 * MOST_KEYS


def test_many_shards_and_a_long_run_leave_a_bounded_divergence() -> None:
    """The first shards have curves, each of at most 256 points with the extremes."""
    divergence = Divergence()
    of_shards = [[0.5, 1, 7]] * (MOST_SHARDS + 9)
    spiked = [[9.5, 1, 7]] * (MOST_SHARDS + 9)
    records = [
        {"kind": "applied", "at": float(n), "version": n, "divergence": 0.5, "lag": 1,
         "by_shard": spiked if n == 345 else of_shards} for n in range(700)
    ]  # fmt: skip
    for batch in _batched(records):
        divergence.take(batch)
    rows = divergence.rows
    assert list(rows.distance_by_shard) == list(rows.lag_by_shard) == list(range(MOST_SHARDS))
    assert all(len(curve) <= 256 and curve.high.max() == 9.5 for curve in rows.distance_by_shard.values())


def test_the_shards_of_a_life_that_ended_are_not_shown_as_they_are_now() -> None:
    """Bytes per second are between two records of the same life."""
    divergence, life = Divergence(), {"kind": "run", "at": 0.0}
    applied = [
        {"kind": "applied", "at": float(n), "version": n, "divergence": 0.5, "lag": 1, "by_shard": [[0.5, 1, 7.0 * n]]}
        for n in range(3)
    ]
    seen = []
    for batch in _batched([*applied, life, {"kind": "note", "at": 1.0}, *applied], 2):
        divergence.take(batch)
        seen.append([one.bytes_per_second for one in divergence.rows.shards])
    assert seen == [[7.0], [7.0], [], [None], [7.0]]


def test_what_happened_is_kept_as_far_as_it_is_new() -> None:
    """Lives, failovers, events and checkpoints; seconds without protection are all counted."""
    failures, records = Failures(), []
    for n in range(NEWEST + 50):
        records.append({"kind": "run", "at": 0.0, "from_version": n})
        records.append({"kind": "protection", "at": 0.0, "shards": [0]})
        lost = {"distance_lost": 0.0, "updates_lost": 0, "bound": None, "unit": None, "signal": "retired"}
        took = {"detected_seconds": 0.0, "promoted_seconds": 0.0, "copy": "server-0-1", "process": "tcp://a:1"}
        records.append({"kind": "promoted", "at": 0.5, "role": "server", "shard": 0, "epoch": 2, **lost, **took})
        figures = {"number": n, "version": n, "event": "complete", "seconds": 0.0, "bytes": 1, "reason": ""}
        records.append({"kind": "checkpoint", "at": 1.0, **figures})
    for batch in _batched(records):
        failures.take(batch)
    rows = failures.rows
    assert [len(one) for one in (rows.lives, rows.failovers, rows.events, rows.checkpoints)] == [NEWEST] * 4
    assert (rows.lives[-1], rows.checkpoints[-1].number) == (NEWEST + 49.0, NEWEST + 49)
    assert rows.unprotected_s == NEWEST + 50


def test_a_failover_of_a_life_that_ended_is_not_protected_by_the_next_one() -> None:
    """A recovery makes other copies; and what it resumes is its own failover of the same epoch."""
    lost = {"distance_lost": 0.0, "updates_lost": 0, "bound": None, "unit": None, "signal": "silent; not heard"}
    took = {"detected_seconds": 0.25, "promoted_seconds": 0.5, "copy": "server-0-1", "process": "tcp://a:1"}
    promoted = {"kind": "promoted", "at": 2.0, "role": "server", "shard": 0, "epoch": 2, **lost, **took}
    resumed = {"kind": "resumed", "at": 4.0, "role": "server", "shard": 0, "epoch": 2, "first_commit_seconds": 2.5}
    failures = Failures()
    life = {"kind": "run", "at": 0.0}
    for batch in _batched([life, promoted, life, promoted, resumed, resumed, promoted | {"epoch": 3}]):
        failures.take(batch)
    found = [(one.killed_at, one.first_commit_at, one.protected_at) for one in failures.rows.failovers]
    assert found == [(1.25, None, None), (3.25, 6.0, None), (3.25, None, None)]
    assert {one.lost for one in failures.rows.failovers} == {"nothing lost"}


def test_a_promotion_is_not_protected_by_news_from_before_it() -> None:
    """Where several things happen at one moment, the order of the log counts."""
    lost = {"distance_lost": 0.0, "updates_lost": 0, "bound": None, "unit": None, "signal": "retired"}
    took = {"detected_seconds": 0.0, "promoted_seconds": 0.0, "copy": "server-0-1", "process": "tcp://a:1"}
    promoted = {"kind": "promoted", "at": 2.0, "role": "server", "shard": 0, "epoch": 2, **lost, **took}
    safe, bare = ({"kind": "protection", "at": 2.0, "shards": shards} for shards in ([], [0]))
    failures = Failures()
    for batch in _batched([safe, bare, promoted, safe | {"at": 3.0}]):
        failures.take(batch)
    assert [one.protected_at for one in failures.rows.failovers] == [3.0]


@pytest.mark.parametrize("extend", [1, 2, 600])
def test_losses_that_are_no_numbers_leave_gaps(extend: int) -> None:
    """Whatever diverges, nothing raises or warns; of values whose sum is not finite the middle is shown."""
    values = [math.nan, math.inf, None, -math.inf, 1.7e308, 1.7e308, -1.7e308, -1.7e308] * 150
    curve = Envelope()
    for begin in range(0, len(values), extend):
        part = values[begin : begin + extend]
        curve.extend([1.0] * len(part), [1] * len(part), part)
    rows = curve.curve
    assert curve.stride == 4
    assert np.all(np.isnan(rows.mean[0::2]))
    assert np.all(rows.low[1::2] == -1.7e308)
    assert np.all(rows.high[1::2] == 1.7e308)
    assert np.all(np.isfinite(rows.mean[1::2]))


def test_texts_of_any_length_are_cut() -> None:
    """They are sent to every browser at every refresh."""
    long, failures, drops, decisions = "x" * 10**6, Failures(), Drops(), Decisions()
    where = {"slot": 0, "version": 1, "label": 0}
    records = [
        {"kind": "note", "at": 1.0, "text": long},
        {"kind": "lost", "at": 1.0, "slot": 0, "incarnation": 1, "process": "p", "reason": long},
        {"kind": "finished", "at": 1.0, "outcome": "failed", "detail": long},
        {"kind": "dropped", "at": 1.0, "reason": long, "detail": long, **where},
        _commit(8, reason=long, decision={long: 1.0}),
    ]
    for batch in _batched(records):
        for model in (failures, drops, decisions):
            model.take(batch)
    texts = [one.text for one in failures.rows.events]
    texts += [text for one in drops.rows.newest for text in (one.reason, one.detail)]
    texts += [*drops.rows.over_time.by_key, *drops.rows.by_worker[0], *decisions.rows.figures]
    texts += [text for one in decisions.rows.newest for text in (one.figures, one.reason)]
    assert [len(one) for one in texts] == [300] * 10
    assert all(one.endswith("…") for one in texts)
