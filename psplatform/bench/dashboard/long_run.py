"""A long run of the simulator in a store: one that is over, and one that goes on as if many workers trained now.

Both are written by processes of their own: a long run is a lot of memory, and who measures should not hold it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Event
from types import TracebackType
from typing import Any, Final, Self

from psplatform.core.plan import Stop
from psplatform.errors import ClusterError
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.replication import Bounded
from psplatform.replication.stores.store import create_run, describe_run, update_run
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.log.writer import EventLog

SHARDS: Final = 2
COMPUTE: Final = "shifted-exponential:shift=0.02,mean=0.1;slow:chance=0.05,factor=6"
"""Seconds of a gradient: 64 workers make about 500 updates per second."""

_STEADY: Final = frozenset({"start", "gradient", "commit", "applied"})
"""What is logged again and again while a run goes on."""

_ENDING: Final = frozenset({"left", "evaluated", "finished"})
_AHEAD_S: Final = 0.05
_READY_S: Final = 300.0
_END_S: Final = 10.0

_CONTEXT: Final[SpawnContext] = multiprocessing.get_context("spawn")


def make(store: str, commits: int, workers: int) -> int:
    """Simulate a run and write its log into a new store; return how many records it has.

    Raises
    ------
    ClusterError
        If the process that does so failed.
    """
    process = _CONTEXT.Process(target=_make, args=(store, commits, workers), name="simulation", daemon=True)
    process.start()
    try:
        process.join()
    finally:
        _end(process)
    if process.exitcode:
        raise ClusterError(f"the simulation of {commits} commits failed; its traceback is above")
    return sum(len(found) for found, _ in LogReader(store).iter_from())


def _make(store: str, commits: int, workers: int) -> None:
    from psplatform.simulation.conditions import Conditions  # noqa: PLC0415  brings torch, here only
    from psplatform.simulation.simulate import simulate  # noqa: PLC0415  likewise

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = Job(
        workload="mlp",
        device="cpu",
        policy="asp",
        workers=workers,
        shards=SHARDS,
        stop=Stop(updates=commits),
        replication=Bounded(),
        evaluate_every=None,
        optimizer=SGD(lr=0.01),
    )
    records = simulate(job, Conditions(compute=COMPUTE, timing_only=True), keep_records=True).records
    run = {**records[0], "run": "long", "store": store, "started": time.time()}
    create_run(store, run)
    with EventLog(store, 1) as log:
        for record in [run, *records[1:]]:
            log.append(record)
    update_run(store, outcome="updates")


class LiveRun:
    """A run whose log grows at the pace of the one in `source`, after all that is logged there; ends with its context.

    Parameters
    ----------
    source
        Store of a run that is over.
    store
        Where the run that goes on is to be.
    """

    def __init__(self, source: str, store: str) -> None:
        ready = _CONTEXT.Event()
        self._process = _CONTEXT.Process(target=_go_on, args=(source, store, ready), name="live run", daemon=True)
        self._process.start()
        give_up_at = time.monotonic() + _READY_S
        try:
            while not ready.wait(0.2):
                self.require_going()
                if time.monotonic() > give_up_at:
                    raise ClusterError(f"a run that goes on was not there within {_READY_S:g} s; look at {store}")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def require_going(self) -> None:
        """Raise `ClusterError` unless the run goes on."""
        if self._process.exitcode is not None:
            raise ClusterError("the process that writes the live run's log ended; its traceback is above")

    def close(self) -> None:
        """End the run where it is."""
        _end(self._process)


def _end(process: Any) -> None:
    if process.is_alive():
        process.terminate()
        process.join(_END_S)
    if process.is_alive():
        process.kill()
        process.join()


def _go_on(source: str, store: str, ready: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = os.getppid()
    description = {key: value for key, value in describe_run(source).items() if key not in ("outcome", "format")}
    length = _Length.of(source)
    told = {"run": "live", "store": store}
    with EventLog(store, 1) as log:
        for record in _records(source):
            if record["kind"] in _ENDING:
                continue
            if record["kind"] == "run":
                create_run(store, {**description, **told, "started": time.time()})
            log.append({**record, **told} if record["kind"] == "run" else record)
        log.flush()
        ready.set()
        began = time.monotonic() - length.seconds
        for record in _again_and_again(source, length):
            ahead = began + record["at"] - time.monotonic()
            if ahead > _AHEAD_S:
                time.sleep(ahead)
                if os.getppid() != parent:
                    return
            log.append(record)


def _records(store: str) -> Iterator[Record]:
    for found, _ in LogReader(store).iter_from():
        yield from found


@dataclass(frozen=True, slots=True)
class _Length:
    """How long a run is: in seconds, versions, and iterations of each worker."""

    seconds: float
    versions: int
    iterations: dict[int, int]

    @classmethod
    def of(cls, store: str) -> _Length:
        seconds, versions, iterations = 0.0, 0, dict[int, int]()
        for record in _records(store):
            seconds = record["at"]
            versions = max(versions, record.get("version", 0))
            if record["kind"] == "start":
                iterations[record["slot"]] = record["sequence"]
        return cls(seconds, versions, iterations)

    def times(self, count: int) -> _Length:
        iterations = {slot: number * count for slot, number in self.iterations.items()}
        return _Length(self.seconds * count, self.versions * count, iterations)


def _again_and_again(source: str, length: _Length) -> Iterator[Record]:
    """Yield what workers and servers log, for ever: in each repetition, times, versions and iterations go on."""
    for count in itertools.count(1):
        before = length.times(count)
        for record in _records(source):
            if record["kind"] in _STEADY:
                yield _shifted(record, before)


def _shifted(record: Record, before: _Length) -> Record:
    versions: Record = {
        name: record[name] + before.versions for name in ("version", "position", "label") if name in record
    }
    moved: Record = {**record, **versions, "at": record["at"] + before.seconds}
    if "sequence" in record:
        moved["sequence"] = record["sequence"] + before.iterations[record["slot"]]
    if "sequences" in record:
        pairs = zip(record["slots"], record["sequences"], strict=True)
        moved["sequences"] = [sequence + before.iterations[slot] for slot, sequence in pairs]
    if "clock" in record:
        moved["clock"] = record["clock"] + before.iterations[record["slot"]]
        moved["min_clock"] = record["min_clock"] + min(before.iterations.values())
    return moved
