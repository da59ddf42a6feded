"""Folding the records of a run's log into its picture, one by one or many at once.

Folding is pure and deterministic, takes constant time per record (amortised over the thinning of series) and memory
that grows with the number of slots and shards only, however long the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from psplatform.core.quality import Watch
from psplatform.errors import ProtocolError
from psplatform.telemetry.log.grouped import Grouped
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import Point, TimeSpent
from psplatform.telemetry.picture import Best, Evaluation, Incident, Outcome, Picture
from psplatform.telemetry.transfers import MOVES
from psplatform.telemetry.workers import WorkerView


@dataclass(slots=True)
class RunView(Picture):
    """A run's picture that grows with its log."""

    def apply(self, record: Record) -> None:
        """Fold the next record; kinds of later versions of psplatform are ignored.

        Raises
        ------
        ProtocolError
            If a record of a known kind lacks a field.
        """
        kind = record.get("kind", "")
        fold = _FOLDS.get(kind)
        if fold is None:
            return
        try:
            self.seconds = max(self.seconds, record["at"])
            fold(self, record)
        except KeyError as error:
            message = f"a log record of kind {kind!r} has no field {error}; read the log with the psplatform it is of"
            raise ProtocolError(message) from error

    def take(self, grouped: Grouped) -> None:
        """Fold the next records: to the same picture as one by one, in a third of the time.

        Raises
        ------
        ProtocolError
            If a record of a known kind lacks a field; the picture is of no use then.
        """
        if _TURNING.isdisjoint(grouped.kinds):
            self._take(grouped)
            return
        begin = 0
        for place, record in enumerate(grouped.records):
            if record.get("kind", "") in _TURNING:
                self._take(Grouped(grouped.records[begin:place]))
                self.apply(record)
                begin = place + 1
        self._take(Grouped(grouped.records[begin:]))

    def _take(self, grouped: Grouped) -> None:
        # The order between kinds does not matter here: they change different parts of the picture.
        if grouped.kinds - _STEADY:
            for record in grouped.records:
                if record.get("kind", "") not in _STEADY:
                    self.apply(record)
        for kind in grouped.kinds & _STEADY:
            self.seconds = max(chain((self.seconds,), grouped.column(kind, "at")))
        self._take_gradients(grouped)
        self._take_iterations(grouped)
        self._take_commits(grouped)
        self._take_applied(grouped)
        self.transfers.take(grouped)
        dropped = zip(grouped.column("dropped", "reason"), grouped.column("dropped", "slot"), strict=True)
        for (reason, slot), count in Counter(dropped).items():
            self._worker(slot).dropped += count
            self.dropped.add(reason, slot, count)

    def _take_iterations(self, grouped: Grouped) -> None:
        """Fold what workers began and ended: of each slot, the newest is what counts."""
        names = ("slot", "sequence", "version", "clock", "min_clock")
        starts = list(zip(*(grouped.column("start", name) for name in names), strict=True))
        begun = {start[0]: start[1:4] for start in starts}
        aborted = Counter(grouped.column("aborted", "slot"))
        self.abort_s.extend(grouped.column("aborted", "latency_s"))
        last = {record["slot"]: record["kind"] for record in grouped.among(_ITERATION)}
        for slot, kind in last.items():
            worker = self._worker(slot)
            worker.aborted += aborted[slot]
            if slot in begun:
                worker.status = "computing"
                worker.sequence, worker.version, worker.clock = begun[slot]
            if kind != "start":
                worker.rest()
        if starts:
            self.min_clock = starts[-1][-1]

    def _take_gradients(self, grouped: Grouped) -> None:
        slots = grouped.column("gradient", "slot")
        columns = [grouped.column("gradient", name) for name in TimeSpent.__dataclass_fields__]
        self.gradients += len(slots)
        self.time.extend(*columns)
        losses = dict(zip(slots, grouped.column("gradient", "loss"), strict=True))
        for slot, count in Counter(slots).items():
            worker = self._worker(slot)
            worker.gradients += count
            worker.loss = losses[slot]
        self._take_times(slots, columns)

    def _take_times(self, slots: list[int], columns: list[list[float]]) -> None:
        """Add to each worker's seconds, in order: the sums are those of one after the other."""
        known = list(dict.fromkeys(slots))
        places = {slot: place for place, slot in enumerate(known)}
        rows = [places[slot] for slot in slots]
        for name, column in zip(TimeSpent.__dataclass_fields__, columns, strict=True):
            sums = np.array([getattr(self.workers[slot].time, name) for slot in known], dtype=np.float64)
            np.add.at(sums, rows, np.array(column, dtype=np.float64))
            for slot, total in zip(known, sums.tolist(), strict=True):
                setattr(self.workers[slot].time, name, total)

    def _take_commits(self, grouped: Grouped) -> None:
        commits = grouped.of("commit")
        if not commits:
            return
        at, version, loss, rate, delays, slots = (
            grouped.column("commit", name) for name in ("at", "version", "loss", "rate", "staleness", "slots")
        )
        self.commits += len(commits)
        self.updates = self._of_all(self.decided, commits)
        self.loss = loss[-1]
        self.losses.extend(len(commits), lambda place: Point(at[place], version[place], loss[place]))
        self.rates.extend(len(commits), lambda place: Point(at[place], version[place], rate[place]))
        self.staleness_series.extend(len(commits), lambda place: Point(at[place], version[place], _mean(delays[place])))
        self.staleness.add(chain.from_iterable(delays))
        self.commit_s.extend(grouped.column("commit", "duration_s"))
        for slot, count in Counter(chain.from_iterable(slots)).items():
            self.applied += count
            self._worker(slot).applied += count

    def _take_applied(self, grouped: Grouped) -> None:
        applied = grouped.of("applied")
        if applied and grouped.column("applied", "version"):
            self.visible = self._of_all(self.shown, applied)
            self.visible_s.extend(grouped.column("applied", "visible_s"))
            self.protection.show_all(applied)

    def _run(self, record: Record) -> None:
        # A run that was recovered from its store describes itself again and is no longer over: what was true of the
        # processes before is not any more, and what has happened stays.
        self.run = {key: value for key, value in record.items() if key not in ("kind", "at")}
        self.seconds, self.outcome = record["at"], None
        self.updates = self.visible = self.from_version
        self.decided, self.shown, self.workers = {}, {}, {}
        self.protection.begin(record.get("term", 1))

    def _joined(self, record: Record) -> None:
        worker = self._worker(record["slot"])
        if worker.status == "lost":
            self._incident(record, f"slot {worker.slot} is taken by {record['process']}")
        worker.join(record)

    def _lost(self, record: Record) -> None:
        worker = self._worker(record["slot"])
        worker.lose(record)
        self._incident(record, f"slot {worker.slot} lost {record['process']}: {record['reason']}")

    def _start(self, record: Record) -> None:
        self._worker(record["slot"]).start(record)
        self.min_clock = record["min_clock"]

    def _gradient(self, record: Record) -> None:
        self.gradients += 1
        self._worker(record["slot"]).finish(record)
        self.time.add(record["compute_s"], record["pull_s"], record["push_s"], record["wait_s"])

    def _dropped(self, record: Record) -> None:
        worker = self._worker(record["slot"])
        worker.dropped += 1
        self.dropped.add(record["reason"], worker.slot)

    def _commit(self, record: Record) -> None:
        at, version, delays = record["at"], record["version"], record["staleness"]
        self.commits += 1
        self.updates = self._of_all(self.decided, [record])
        self.applied += len(record["slots"])
        self.loss = record["loss"]
        self.losses.append(Point(at, version, record["loss"]))
        self.rates.append(Point(at, version, record["rate"]))
        self.staleness.add_one(delays[0]) if len(delays) == 1 else self.staleness.add(delays)
        self.staleness_series.append(Point(at, version, _mean(delays)))
        self.commit_s.add(record["duration_s"])
        for slot in record["slots"]:
            self._worker(slot).applied += 1

    def _applied(self, record: Record) -> None:
        self.visible = self._of_all(self.shown, [record])
        self.visible_s.add(record["visible_s"])
        self.protection.show(record)

    def _copy(self, record: Record) -> None:
        text = self.protection.change(record)
        if text is not None:
            self._incident(record, text)

    def _promoted(self, record: Record) -> None:
        self._incident(record, self.protection.promote(record).text)

    def _checkpoint(self, record: Record) -> None:
        text = self.checkpoints.add(record)
        if text is not None:
            self._incident(record, text)

    def _aborted(self, record: Record) -> None:
        worker = self._worker(record["slot"])
        worker.aborted += 1
        worker.rest()
        self.abort_s.add(record["latency_s"])

    def _evaluated(self, record: Record) -> None:
        self._reached(record["accuracy"])
        self.evaluation_loss = record["loss"]
        self.evaluations.append(Evaluation(record["at"], record["version"], record["loss"], record["accuracy"]))
        self.metrics = _metrics(record)
        self._compare(record)

    def _compare(self, record: Record) -> None:
        """Keep the version as the best so far if it is, by the same rule as the coordinator's."""
        watch = _watch(self.run)
        value = {**self.metrics, "loss": record["loss"], "accuracy": record["accuracy"]}.get(watch.metric)
        before = self.best.value if self.best is not None and self.best.metric == watch.metric else None
        if value is not None and watch.is_better(value, before):
            self.best = Best(watch.metric, value, record["version"], bool(record.get("kept")))

    def _finished(self, record: Record) -> None:
        self._reached(record["accuracy"])
        self.outcome = Outcome(**{name: record[name] for name in Outcome.__dataclass_fields__})
        self.seconds = max(self.seconds, record["seconds"])

    def _reached(self, accuracy: float | None) -> None:
        if accuracy is not None:
            self.accuracy = accuracy
            self.best_accuracy = max(accuracy, self.best_accuracy or 0.0)

    def _of_all(self, versions: dict[int, int], records: Sequence[Record]) -> int:
        """Take the blocks' versions; return the one that all blocks have."""
        for record in records:
            if "block" in record:
                versions[record["block"]] = record["version"]
        newest = records[-1]
        if "block" not in newest:
            return int(newest["version"])
        return min(versions.values()) if len(versions) == self.shards else self.from_version

    def _worker(self, slot: int) -> WorkerView:
        if slot not in self.workers:
            self.workers[slot] = WorkerView(slot)
        return self.workers[slot]

    def _incident(self, record: Record, text: str) -> None:
        self.incidents.append(Incident(record["at"], record["kind"], text))


def _metrics(record: Record) -> dict[str, float]:
    found = record.get("metrics") or {}
    if not isinstance(found, dict) or {type(one) for one in found.values()} - {int, float}:
        message = "a log record of kind 'evaluated' has metrics that are not numbers by name"
        raise ProtocolError(f"{message}; read the log with the psplatform it is of")
    return {str(name): float(value) for name, value in found.items()}


def _watch(run: Record) -> Watch:
    found = run.get("watch") or {"metric": "loss", "lower": ["loss"]}  # older logs have none
    try:
        return Watch(str(found["metric"]), frozenset(map(str, found["lower"])))
    except (TypeError, KeyError) as error:
        message = "a log record of kind 'run' has a field 'watch' that is none"
        raise ProtocolError(f"{message}; read the log with the psplatform it is of") from error


def _mean(delays: Sequence[int]) -> float:
    return sum(delays) / len(delays) if delays else 0.0


_TURNING: Final = frozenset({"run", "joined", "left", "lost", "servers"})
"""Kinds that change how what comes after them is folded."""

_ITERATION: Final = frozenset({"start", "gradient", "aborted"})
_STEADY: Final = frozenset({*_ITERATION, "dropped", "commit", "applied", *MOVES})
"""Kinds that are logged again and again while a run goes on."""

_FOLDS: Final[dict[str, Callable[[RunView, Record], None]]] = {
    "run": RunView._run,
    "joined": RunView._joined,
    "left": lambda view, record: view._worker(record["slot"]).leave(record),
    "lost": RunView._lost,
    "start": RunView._start,
    "gradient": RunView._gradient,
    "dropped": RunView._dropped,
    "commit": RunView._commit,
    "applied": RunView._applied,
    "copy": RunView._copy,
    "promoted": RunView._promoted,
    "resumed": lambda view, record: view.protection.resume(record),
    "lost positions": lambda view, record: view.protection.lose(record),
    "beyond bound": lambda view, record: view._incident(record, view.protection.outstep(record)),
    "protection": lambda view, record: view.protection.expose(record),
    "survives": lambda view, record: view.protection.outlive(record),
    "checkpoint": RunView._checkpoint,
    "cold replica": lambda view, record: view._incident(record, record["text"]),
    "store": lambda view, record: view._incident(record, record["text"]),
    "transfer": lambda view, record: view.transfers.take(Grouped([record])),
    "pull": lambda view, record: view.transfers.take(Grouped([record])),
    "servers": lambda view, record: view.transfers.serve(record, view.vector_bytes),
    "aborted": RunView._aborted,
    "evaluated": RunView._evaluated,
    "bad batch": lambda view, record: view._incident(record, view.bad_batches.add(record)),
    "note": lambda view, record: view._incident(record, record["text"]),
    "finished": RunView._finished,
}
