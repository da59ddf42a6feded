"""Whatever a log says and however it is read, the rows are those of a plain fold of all of its records."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from psplatform.dashboard.read_models import reading as module
from psplatform.dashboard.read_models.convergence import MOST_METRICS
from psplatform.dashboard.read_models.counts import Counts
from psplatform.dashboard.read_models.decisions import MOST_FIGURES, Decision
from psplatform.dashboard.read_models.divergence import ShardRow
from psplatform.dashboard.read_models.drops import Dropped
from psplatform.dashboard.read_models.envelopes import MOST_BINS, Curve
from psplatform.dashboard.read_models.failures import CheckpointRow, Event, FailoverRow
from psplatform.dashboard.read_models.reading import Models, Reading
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import START, Record
from psplatform.telemetry.protection import Failover
from psplatform.telemetry.read_model import RunView

ALWAYS_S = 1e9

# A log has thousands of records: shrinking it takes longer than a test may hang.  The blob of an example repeats it.
WHOLE = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate), print_blob=True)

Value = tuple[float, float, float | None]


class Told:
    """The records of a log with their time and life."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records: list[tuple[float, int, Record]] = []
        self.newest_s, self.life, offset = 0.0, 0, 0.0
        for record in records:
            if record["kind"] == "run":
                self.life, offset = self.life + 1, self.newest_s
            self.newest_s = max(self.newest_s, offset + record["at"])
            self.records.append((offset + record["at"], self.life, record))

    def of(self, *kinds: str) -> list[tuple[float, int, Record]]:
        return [one for one in self.records if one[2]["kind"] in kinds]

    def values(self, kind: str, value: Callable[[Record], Any], has: str = "at") -> list[Value]:
        return [(at, record["version"], value(record)) for at, _, record in self.of(kind) if has in record]


def _is_curve(curve: Curve, values: Sequence[Value], limit: int = MOST_BINS) -> None:
    stride = 1
    while len(values) > limit * stride:
        stride *= 2
    points = [values[begin : begin + stride] for begin in range(0, len(values), stride)]
    assert curve.at.tolist() == [point[-1][0] for point in points]
    assert curve.version.tolist() == [point[-1][1] for point in points]
    finite = [[one for _, _, one in point if one is not None and math.isfinite(one)] for point in points]
    assert [None if math.isnan(low) else low for low in curve.low] == [min(one, default=None) for one in finite]
    assert [None if math.isnan(high) else high for high in curve.high] == [max(one, default=None) for one in finite]
    for mean, low, high, found in zip(curve.mean, curve.low, curve.high, finite, strict=True):
        assert math.isnan(mean) if not found else low <= mean <= high
        if found and max(abs(one) for one in found) < 1e300:
            assert mean == pytest.approx(math.fsum(found) / len(found), rel=1e-9, abs=1e-9)


def _are_counts(counts: Counts, newest_s: float, events: Sequence[tuple[float, str]]) -> None:
    width_s = 0.5
    while newest_s >= 240 * width_s:
        width_s *= 2
    found = {key: [0] * (int(newest_s / width_s) + 1) for _, key in events}
    for at, key in events:
        found[key][int(at / width_s)] += 1
    assert (counts.width_s, counts.until_s) == (width_s, newest_s)
    assert {key: one.tolist() for key, one in counts.by_key.items()} == found


def _are_curves_of_commits(models: Models, told: Told) -> None:
    rows = models.convergence.rows
    _is_curve(rows.training, told.values("commit", lambda one: one["loss"]))
    _is_curve(rows.held_out, told.values("evaluated", lambda one: one["loss"]))
    _is_curve(rows.accuracy, told.values("evaluated", lambda one: one["accuracy"]))
    evaluated = told.of("evaluated")
    names = list(dict.fromkeys(name for _, _, one in evaluated for name in one["metrics"]))[:MOST_METRICS]
    assert list(rows.metrics) == names
    for name in names:
        found = [(at, one["version"], one["metrics"][name]) for at, _, one in evaluated if name in one["metrics"]]
        _is_curve(rows.metrics[name], found)
    _are_counts(rows.commits, told.newest_s, [(at, "commits") for at, _, _ in told.of("commit")])
    each = [(at, one["version"], delay) for at, _, one in told.of("commit") for delay in one["staleness"]]
    _is_curve(models.staleness.rows.staleness, each)


def _are_decisions(models: Models, told: Told) -> None:
    rows, commits = models.decisions.rows, told.of("commit")
    _is_curve(rows.rate, told.values("commit", lambda one: one["rate"]))
    _is_curve(rows.gradients, told.values("commit", lambda one: len(one["slots"])))
    names = list(dict.fromkeys(name for _, _, one in commits for name in one.get("decision", {})))[:MOST_FIGURES]
    assert sorted(rows.figures) == sorted(names)
    for name in names:
        decided = [(at, one["version"], one["decision"]) for at, _, one in commits if name in one.get("decision", {})]
        _is_curve(rows.figures[name], [(at, version, figures[name]) for at, version, figures in decided])
    words = [", ".join(f"{name} = {value:g}" for name, value in one.get("decision", {}).items()) for *_, one in commits]
    assert rows.newest == tuple(
        Decision(at, one["version"], len(one["slots"]), one["rate"], text, one["reason"])
        for (at, _, one), text in list(zip(commits, words, strict=True))[:-101:-1]
    )


def _are_drops(models: Models, told: Told) -> None:
    rows, drops = models.drops.rows, told.of("dropped")
    known = list(dict.fromkeys(one["reason"] for *_, one in drops))[:63]
    reasons = [one["reason"] if one["reason"] in known else "other" for *_, one in drops]
    _are_counts(rows.over_time, told.newest_s, [(at, why) for (at, _, _), why in zip(drops, reasons, strict=True)])
    pairs = Counter((one["slot"], why) for (_, _, one), why in zip(drops, reasons, strict=True))
    assert {(slot, why): count for slot, of in rows.by_worker.items() for why, count in of.items()} == pairs
    named = ("slot", "version", "label", "reason", "detail")
    assert rows.newest == tuple(Dropped(at, *(one[name] for name in named)) for at, _, one in drops[:-101:-1])


def _are_transfers(models: Models, told: Told) -> None:
    rows, transfers, pulls = models.network.rows, told.of("transfer"), told.of("pull")
    planned, expected = ([one for one in of if one[2]["planned_s"] is not None] for of in (transfers, pulls))
    for curve, records, name in (
        (rows.gradients.took, planned, "took_s"),
        (rows.gradients.planned, planned, "planned_s"),
        (rows.parameters.took, pulls, "took_s"),
        (rows.parameters.planned, expected, "planned_s"),
    ):
        _is_curve(curve, [(at, 0, one[name]) for at, _, one in records], limit=128)
    assert rows.sizes == Counter(len(one["slots"]) if len(one["slots"]) < 64 else 128 for *_, one in transfers)


def _are_workers(models: Models, told: Told) -> None:
    took: dict[int, list[float]] = {}
    for _, _, one in told.of("gradient"):
        took.setdefault(one["slot"], []).append(one["compute_s"])
    medians = {slot: statistics.median(seconds[-32:]) for slot, seconds in took.items()}
    rows = models.workers.rows
    assert [row.slot for row in rows] == sorted(took)
    for row in rows:
        seconds = sorted(took[row.slot])
        assert (row.gradients, row.least, row.largest) == (len(seconds), seconds[0], seconds[-1])
        assert row.score == pytest.approx(medians[row.slot] / statistics.median(medians.values()))
        for share, found in zip((0.05, 0.25, 0.5, 0.75, 0.95), row.quantiles, strict=True):
            exact = seconds[math.ceil(share * len(seconds)) - 1]
            assert abs(math.log10(found / exact)) <= 1 / 16
            assert row.least <= found <= row.largest


def _is_divergence(models: Models, told: Told) -> None:
    rows, sampled = models.divergence.rows, [one for one in told.of("applied") if "by_shard" in one[2]]
    _is_curve(rows.distance, told.values("applied", lambda one: one["divergence"], "divergence"))
    _is_curve(rows.lag, told.values("applied", lambda one: one["lag"], "lag"))
    assert set(rows.distance_by_shard) == set(rows.lag_by_shard) == set(range(3 if sampled else 0))
    for shard in rows.lag_by_shard:
        samples = [(at, one["version"], one["by_shard"][shard]) for at, _, one in sampled]
        _is_curve(rows.distance_by_shard[shard], [(at, version, one[0]) for at, version, one in samples], 256)
        _is_curve(rows.lag_by_shard[shard], [(at, version, one[1]) for at, version, one in samples], 256)
    now = [(at, one["by_shard"]) for at, life, one in sampled if life == told.life]
    expected = []
    for shard in range(3 if now else 0):
        (at, (divergence, lag, sent)), rate = (now[-1][0], now[-1][1][shard]), None
        if len(now) > 1 and at > now[-2][0]:
            rate = max(0.0, sent - now[-2][1][shard][2]) / (at - now[-2][0])
        expected.append(ShardRow(shard, divergence, lag, rate))
    assert rows.shards == tuple(expected)


def _failover(told: Told, place: int) -> FailoverRow:
    at, life, record = told.records[place]
    later = [(when, one) for when, of, one in told.records[place + 1 :] if of == life]
    named = ("role", "shard", "epoch")
    same = [when for when, one in later if one["kind"] == "resumed" and all(one[n] == record[n] for n in named)]
    safe = [when for when, one in later if one["kind"] == "protection" and record["shard"] not in one["shards"]]
    failover = Failover(**{name: value for name, value in record.items() if name != "kind"})
    server, noticed = record["role"] == "server", at - record["promoted_seconds"]
    return FailoverRow(
        *(record["role"], record["shard"], noticed - record["detected_seconds"], noticed, at),
        next(iter(same), None),
        next(iter(safe), None) if server else None,
        failover.text.split("; ")[-1] if server else "nothing: the standby has seen everything",
        failover.text,
    )


def _copy_text(told: Told, place: int) -> str:
    _, life, record = told.records[place]
    of = ("shard", "copy")
    before = [
        one.get("event", "promoted")
        for _, when, one in told.records[:place]
        if when == life and one["kind"] in ("copy", "promoted") and all(one[name] == record[name] for name in of)
    ]
    if record["event"] != "lost" or not before or before[-1] not in ("ready", "in sync", "out of sync"):
        return ""
    return f"shard {record['shard']}: replica {record['copy']} lost ({record['reason']})"


def _event_text(told: Told, place: int) -> str:
    _, life, one = told.records[place]
    if one["kind"] == "checkpoint":
        return f"checkpoint {one['number']} failed: {one['reason']}" if one["event"] == "failed" else ""
    texts: dict[str, Callable[[], str]] = {
        "run": lambda: f"recovered: goes on from version {one.get('from_version', 0)}" if life > 1 else "",
        "promoted": lambda: _failover(told, place).text,
        "copy": lambda: _copy_text(told, place),
        "lost": lambda: f"slot {one['slot']} lost {one['process']}: {one['reason']}",
        "joined": lambda: f"slot {one['slot']} is taken by {one['process']}" if one["incarnation"] > 1 else "",
        "beyond bound": lambda: (
            f"the step to version {one['version']} exceeds the bound of shard {one['shard']} by itself"
        ),
        "finished": lambda: "updates: 1 of 1",
        "note": lambda: one["text"],
        "cold replica": lambda: one["text"],
    }
    return texts.get(one["kind"], lambda: "")()


def _are_failures(models: Models, told: Told) -> None:
    rows, places = models.failures.rows, range(len(told.records))
    promoted = [place for place in places if told.records[place][2]["kind"] == "promoted"][-200:]
    assert rows.failovers == tuple(_failover(told, place) for place in promoted)
    tellable = [place for place in places if told.records[place][2]["kind"] not in ("gradient", "commit", "applied")]
    events = [(told.records[place][0], told.records[place][2]["kind"], place) for place in tellable]
    texts = ((at, kind, _event_text(told, place)) for at, kind, place in events)
    assert rows.events == tuple([Event(*one) for one in texts if one[2]][-200:])
    named = ("number", "version", "event", "seconds", "bytes")
    written = [CheckpointRow(at, *(one[name] for name in named)) for at, _, one in told.of("checkpoint")]
    assert rows.checkpoints == tuple(written[-200:])
    assert rows.lives == tuple([at for at, _, _ in told.of("run")][-200:])
    changes = [(at, one.get("shards") if one["kind"] != "run" else []) for at, _, one in told.of("run", "protection")]
    lacking = [end - begin for (begin, shards), (end, _) in pairwise([*changes, (told.newest_s, [])]) if shards]
    assert rows.unprotected_s == pytest.approx(sum(lacking))
    assert rows.unprotected == tuple(changes[-1][1] if changes else ())


def _are_rows_of(models: Models, records: Sequence[Record]) -> None:
    told, view = Told(records), RunView()
    for record in records:
        view.apply(record)
    assert models.view.to_summary() == view.to_summary()
    assert models.clock.newest_s == told.newest_s
    _are_curves_of_commits(models, told)
    _are_decisions(models, told)
    _are_drops(models, told)
    _are_transfers(models, told)
    _are_workers(models, told)
    _is_divergence(models, told)
    _are_failures(models, told)


def _logged(store: str) -> list[Record]:
    return [record for records, _ in LogReader(store).iter_from() for record in records]


def _same_rows(reading: Reading) -> None:
    records = _logged(reading.store)
    reading.read(lambda models: _are_rows_of(models, records))


@settings(WHOLE, max_examples=40)
@given(data=st.data())
def test_rows_are_those_of_a_plain_fold_however_the_log_is_read(
    data: st.DataObject, any_segments: Any, new_store: Any, opened: Any, write: Any
) -> None:
    """Refreshes between any two segments, with or without time to read all, in bulks of any size."""
    store, segments = new_store(), data.draw(any_segments)
    log, reading = opened(store), Reading(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BULK", data.draw(st.sampled_from([1, 100, 4096])))
        for segment in segments:
            write(log, segment)
            for budget_s in data.draw(st.lists(st.sampled_from([0.0, ALWAYS_S]), max_size=2)):
                progress = reading.refresh(budget_s)
                assert progress.complete or budget_s == 0.0
        while not reading.refresh(0.0).complete:
            pass
    _same_rows(reading)


@settings(WHOLE, max_examples=15)
@given(data=st.data())
def test_a_log_that_a_takeover_has_changed_is_read_again(
    data: st.DataObject, any_segments: Any, new_store: Any, opened: Any, write: Any
) -> None:
    """What the lost coordinator wrote beyond the place where its successor goes on is in no row any more."""
    store = new_store()
    reading, ends = Reading(store), [START]
    for term in (1, 2, 3):
        log = opened(store, term, after=data.draw(st.sampled_from(ends)))
        for segment in data.draw(any_segments)[:3]:
            write(log, segment)
            reading.refresh(data.draw(st.sampled_from([0.0, ALWAYS_S])))
        history = LogReader(store).history()
        ends = [START, *history.after(START)]
    while not reading.refresh(0.0).complete:
        pass
    _same_rows(reading)


def test_threads_may_refresh_and_read_one_reading_at_the_same_time(new_store: Any, opened: Any, write: Any) -> None:
    """What any of them sees is a whole number of segments, and in the end all is there once."""
    store = new_store()
    log, reading, troubles = opened(store), Reading(store), []
    records = [{"kind": "gradient", "at": n / 8, "slot": n % 3, "sequence": n, "label": 0, "loss": 1.0, "norm": 1.0,
                "compute_s": 0.25, "pull_s": 0.125, "push_s": 0.0, "wait_s": 0.5} for n in range(900)]  # fmt: skip

    def use() -> None:
        try:
            for _ in range(40):
                reading.refresh(0.0)
                counts = reading.read(
                    lambda models: (models.view.gradients, sum(r.gradients for r in models.workers.rows))
                )
                assert counts[0] == counts[1]
                assert counts[0] % 30 == 0
                assert reading.lanes(1.0, 4.0).bars is not None
        except BaseException as error:  # noqa: BLE001  a thread's error would otherwise be lost
            troubles.append(error)

    threads = [Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for begin in range(0, len(records), 30):
        write(log, records[begin : begin + 30])
    for thread in threads:
        thread.join()
    assert troubles == []
    assert reading.refresh(ALWAYS_S).complete
    _same_rows(reading)
    assert np.array_equal(reading.read(lambda models: models.lanes.rows.slots), (0, 1, 2))
