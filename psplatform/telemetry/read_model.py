"""Folding the records of a run's log into its picture, one by one.

Folding is pure and deterministic, takes constant time per record (amortised over the thinning of series) and memory
that grows with the number of slots and shards only, however long the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from psplatform.errors import ProtocolError
from psplatform.telemetry.measures import Point
from psplatform.telemetry.picture import Evaluation, Incident, Outcome, Picture
from psplatform.telemetry.segments import Record
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

    def _run(self, record: Record) -> None:
        # A run that was recovered from its store describes itself again and is no longer over: what was true of the
        # processes before is not any more, and what has happened stays.
        self.run = {key: value for key, value in record.items() if key not in ("kind", "at")}
        self.seconds, self.outcome = record["at"], None
        self.updates = self.visible = self.from_version
        self.decided, self.shown, self.workers = {}, {}, {}
        self.protection.begin(record.get("term", 1))

    def _joined(self, record: Record) -> None:
        worker = self._worker(record)
        if worker.status == "lost":
            self._incident(record, f"slot {worker.slot} is taken by {record['process']}")
        worker.join(record)

    def _lost(self, record: Record) -> None:
        worker = self._worker(record)
        worker.lose(record)
        self._incident(record, f"slot {worker.slot} lost {record['process']}: {record['reason']}")

    def _left(self, record: Record) -> None:
        self._worker(record).leave(record)

    def _start(self, record: Record) -> None:
        self._worker(record).start(record)
        self.min_clock = record["min_clock"]

    def _gradient(self, record: Record) -> None:
        self.gradients += 1
        self._worker(record).finish(record)
        self.time.add(record["compute_s"], record["pull_s"], record["push_s"], record["wait_s"])

    def _dropped(self, record: Record) -> None:
        worker = self._worker(record)
        worker.dropped += 1
        self.dropped.add(record["reason"], worker.slot)

    def _commit(self, record: Record) -> None:
        at, version, delays = record["at"], record["version"], record["staleness"]
        self.commits += 1
        self.updates = self._of_all(self.decided, record)
        self.applied += len(record["slots"])
        self.loss = record["loss"]
        self.losses.append(Point(at, version, record["loss"]))
        self.rates.append(Point(at, version, record["rate"]))
        self.staleness.add(delays)
        self.staleness_series.append(Point(at, version, sum(delays) / len(delays) if delays else 0.0))
        self.commit_s.add(record["duration_s"])
        for slot in record["slots"]:
            self._worker({"slot": slot}).applied += 1

    def _applied(self, record: Record) -> None:
        self.visible = self._of_all(self.shown, record)
        self.visible_s.add(record["visible_s"])
        self.protection.show(record)

    def _copy(self, record: Record) -> None:
        text = self.protection.change(record)
        if text is not None:
            self._incident(record, text)

    def _promoted(self, record: Record) -> None:
        self._incident(record, self.protection.promote(record).text)

    def _resumed(self, record: Record) -> None:
        self.protection.resume(record)

    def _lost_positions(self, record: Record) -> None:
        self.protection.lose(record)

    def _beyond_bound(self, record: Record) -> None:
        self._incident(record, self.protection.outstep(record))

    def _protection(self, record: Record) -> None:
        self.protection.unprotected = tuple(record["shards"])

    def _checkpoint(self, record: Record) -> None:
        text = self.checkpoints.add(record)
        if text is not None:
            self._incident(record, text)

    def _aborted(self, record: Record) -> None:
        worker = self._worker(record)
        worker.aborted += 1
        worker.rest()
        self.abort_s.add(record["latency_s"])

    def _evaluated(self, record: Record) -> None:
        self._reached(record["accuracy"])
        self.evaluation_loss = record["loss"]
        self.evaluations.append(Evaluation(record["at"], record["version"], record["loss"], record["accuracy"]))

    def _note(self, record: Record) -> None:
        self._incident(record, record["text"])

    def _finished(self, record: Record) -> None:
        self._reached(record["accuracy"])
        self.outcome = Outcome(**{name: record[name] for name in Outcome.__dataclass_fields__})
        self.seconds = max(self.seconds, record["seconds"])

    def _reached(self, accuracy: float | None) -> None:
        if accuracy is not None:
            self.accuracy = accuracy
            self.best_accuracy = max(accuracy, self.best_accuracy or 0.0)

    def _of_all(self, versions: dict[int, int], record: Record) -> int:
        """Note a block's version; return the one that all blocks have."""
        version: int = record["version"]
        if "block" not in record:
            return version
        versions[record["block"]] = version
        return min(versions.values()) if len(versions) == self.shards else self.from_version

    def _worker(self, record: Record) -> WorkerView:
        slot = record["slot"]
        if slot not in self.workers:
            self.workers[slot] = WorkerView(slot)
        return self.workers[slot]

    def _incident(self, record: Record, text: str) -> None:
        self.incidents.append(Incident(record["at"], record["kind"], text))


_FOLDS: Final[dict[str, Callable[[RunView, Record], None]]] = {
    "run": RunView._run,
    "joined": RunView._joined,
    "left": RunView._left,
    "lost": RunView._lost,
    "start": RunView._start,
    "gradient": RunView._gradient,
    "dropped": RunView._dropped,
    "commit": RunView._commit,
    "applied": RunView._applied,
    "copy": RunView._copy,
    "promoted": RunView._promoted,
    "resumed": RunView._resumed,
    "lost positions": RunView._lost_positions,
    "beyond bound": RunView._beyond_bound,
    "protection": RunView._protection,
    "checkpoint": RunView._checkpoint,
    "cold replica": RunView._note,
    "aborted": RunView._aborted,
    "evaluated": RunView._evaluated,
    "note": RunView._note,
    "finished": RunView._finished,
}
