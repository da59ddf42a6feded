"""A run that is hurt again and again, each time when it is whole, and what came of each fault.

The run goes on for ever by itself.  Where a fault has ended it, another one is started for the next fault.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, Self

from psplatform.bench.faults.aftermath import (
    Row,
    bare_spans,
    beyond_bound,
    covered_s,
    failovers,
    forgotten,
    longest_pause_s,
    next_commit_s,
    read_log,
    turned_back,
)
from psplatform.bench.faults.onlooker import Look, Onlooker, seconds_until, spans_of
from psplatform.bench.faults.weak_points import Place, roles_at
from psplatform.client.launch import train
from psplatform.client.run import Run
from psplatform.client.runs.attaching import attach
from psplatform.errors import ClusterError, PsplatformError, StoreError
from psplatform.jobs.job import Job
from psplatform.telemetry.follow import LiveRun
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.read_model import RunView

_LOG_S: Final = 1.5
"""What happened is in the log after so long: it is written twice a second."""

_START_S: Final = 900.0
_STARTS: Final = 3
_END_S: Final = 120.0
_STEADY_LOOKS: Final = 3
"""So many looks in a row must find a run whole."""


class Fault(Protocol):
    """Something that is done to a run's processes, and undone."""

    @property
    def name(self) -> str:
        """What is done, in words."""

    @property
    def where(self) -> str:
        """The host or the Dask worker's address that is hit; "" for neither."""

    @property
    def seconds(self) -> float:
        """Between `begin` and `end`."""

    def begin(self) -> None:
        """Do it."""

    def end(self) -> None:
        """Undo it: what was stopped goes on, and what was killed is started again."""


class Cluster(Protocol):
    """What a drill needs to know of the cluster."""

    client: Any

    def is_whole(self) -> bool:
        """Whether every Dask worker is there."""


@dataclass
class Story:
    """What became of one run of a drill.

    Attributes
    ----------
    seconds
        From when it was first whole to its end.
    bare_s, unsafe_s, unspread_s
        Those of them in which a shard had no replica in sync, by the log; in which the run could not have lost any one
        process, or any one host, as far as could be seen.
    back
        In words, where versions went back: in the log as it grew under one coordinator, or as it is in the end.
    retold
        By how many versions the log was shorter, at most, right after a takeover: what the coordinator before had
        written last is told again by its successor, or counts as `forgotten`.
    forgotten
        Versions that a replaced coordinator showed in vain.
    losses
        Of the evaluations, in order.
    """

    store: str
    outcome: str = ""
    seconds: float = 0.0
    bare_s: float = 0.0
    unsafe_s: float = 0.0
    unspread_s: float = 0.0
    back: list[str] = field(default_factory=list)
    retold: int = 0
    forgotten: list[dict[str, int]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)


class Drill:
    """Starts runs of a job on a cluster, and hurts them; a context that looks at none any more when it ends.

    Parameters
    ----------
    folder
        For the runs' stores.
    hosts
        Tells the host of a Dask worker's address.
    settle_s
        How long a run may take to become whole after a fault has ended; the next fault comes all the same.
    spread_s
        How long it may take after that until it could lose any one host again.
    """

    def __init__(
        self, cluster: Cluster, job: Job, folder: Path, *, hosts: Place, settle_s: float, spread_s: float
    ) -> None:
        self._cluster, self._job, self._folder = cluster, job, folder
        self._hosts, self._settle_s, self._spread_s = hosts, settle_s, spread_s
        self.stories: list[Story] = []
        self._started = 0
        self._run: Run | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._run is not None:
            self._onlooker.close()
            self._run.close()
            self._run = None

    @property
    def store(self) -> str:
        """The store of the run that goes on."""
        return self.stories[-1].store

    def begin(self) -> None:
        """Start a run and wait until it is whole; one that ends before that, on a busy machine, is started again.

        Raises
        ------
        ClusterError
            If that takes too long, saying what is missing, or no run gets so far.
        """
        for _ in range(_STARTS):
            self._start()
            _wait(lambda: self._is_settled(0.0) or self._is_over(), "the run is whole")
            if not self._is_over():
                self._whole_at = time.monotonic()
                return
            self.stories.pop()
        raise ClusterError(f"{_STARTS} runs ended before they were hurt, the last with: {self._newest().failure}")

    def _start(self) -> None:
        _wait(self._cluster.is_whole, "every Dask worker is there")
        self._let_go()
        self._started += 1
        store = str(self._folder / f"run-{self._started}.zarr")
        run = train(self._job.model_copy(update={"store": store}), self._cluster.client)
        self._onlooker = Onlooker(attach(store, self._cluster.client), self._hosts)
        self._run, self._live = run, LiveRun(store)
        self._shown = self._live.view, 0
        self.stories.append(Story(store))

    def whole(self) -> Look:
        """Return how the run stands, by the last look that found its coordinator; where it has ended, start another."""
        if self._run is None or self._is_over():
            self.begin()
        return [one for one in self._onlooker.since(0.0) if one.standing][-1]

    def host_of(self, role: str) -> str:
        """Return the host of the role of that name."""
        return self._hosts(self.whole().roles[role])

    @property
    def run_id(self) -> str:
        """The id of the run that goes on."""
        return self._run.run if self._run is not None else ""

    def hurt(self, fault: Fault) -> Row:
        """Inflict a fault; return what came of it once the run is whole again, is over, or its time is up."""
        before = self.whole()
        hit = roles_at(before.standing, before.roles, lambda address: self._hit(address, fault.where), fault.where)
        began = time.monotonic()
        try:
            fault.begin()
            self.watch(fault.seconds)
        finally:
            fault.end()
        ended = time.monotonic()
        self.watch(self._settle_s, lambda: self._is_over() or self._is_settled(ended))
        self.watch(self._spread_s, lambda: self._is_over() or self._newest().is_spread)
        self.watch(_LOG_S)
        row = {"fault": fault.name, "where": fault.where, "hit": hit, "weak_before": before.weak_hosts}
        return {**row, **self._told(before, began, time.monotonic())}

    def finish(self) -> list[Row]:
        """Stop the run in good order; return the stories of all runs."""
        if self._run is not None and not self._is_over():
            self._run.stop("the drill is over")
            with contextlib.suppress(PsplatformError, TimeoutError):
                self._run.wait(_END_S)
        self._close_story()
        return [vars(one) for one in self.stories]

    # --- looking ---

    def _hit(self, address: str, where: str) -> str:
        return where if where and where in (address, self._hosts(address)) else " elsewhere"

    def _newest(self) -> Look:
        newest = self._onlooker.newest()
        return newest if newest is not None else Look(0.0, 0.0, "starting", [""], [""])

    def _is_over(self) -> bool:
        return self._newest().phase == "over"

    def _is_settled(self, since: float) -> bool:
        """Whether the run was whole at every one of the last looks after `since`, and so is the cluster."""
        looks = self._onlooker.since(since)[-_STEADY_LOOKS:]
        return len(looks) == _STEADY_LOOKS and all(one.is_safe for one in looks) and self._cluster.is_whole()

    def watch(self, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Look at the log as it grows, for so long or until it is `enough`."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not enough():
            self._onlooker.wait(min(left, 0.25))
            if self._is_over():
                time.sleep(min(max(left, 0.0), 0.25))
            try:
                self._live.refresh()
            except StoreError:  # a coordinator has just begun to write another term
                continue
            self._compare(self._live.view, self._live.view.visible)

    def _compare(self, view: RunView, shown: int) -> None:
        """Hold the newest version of the log against the one before; the view is another one after a takeover."""
        story, (view_before, before) = self.stories[-1], self._shown
        if view is not view_before:
            story.retold = max(story.retold, before - shown)
        elif shown < before:
            story.back.append(f"the log showed version {before}, and later {shown}")
        self._shown = view, shown

    # --- telling ---

    def _told(self, before: Look, began: float, now: float) -> Row:
        records = _read(self.store)
        at, end = (moment - before.standing["began_s"] for moment in (began, now))
        looks = self._onlooker.since(began)
        over = self._is_over()
        found = failovers(records, at, end)
        row: Row = {
            "at": at,
            "next_commit_s": next_commit_s(records, at),
            "pause_s": longest_pause_s(records, at, end),
            "failovers": found,
            "lost": max((one["updates_lost"] for one in found), default=0),
            "beyond_bound": beyond_bound(found),
            "safe_again_s": None if over else seconds_until(looks, began, of_hosts=False),
            "spread_again_s": None if over else seconds_until(looks, began, of_hosts=True),
            "survived": not over,
            "why": self._newest().failure if over else "",
            "weak_after": [] if over else self._newest().weak_hosts,
            "whole_after": not over and self._is_settled(0.0),
        }
        if over:
            self._close_story()
        return row

    def _began_s(self) -> float:
        return float(next(one.standing["began_s"] for one in self._onlooker.since(0.0) if one.standing))

    def _close_story(self) -> None:
        story, records = self.stories[-1], _read(self.store)
        if story.outcome:
            return
        finished = [one for one in records if one["kind"] == "finished"]
        story.outcome = finished[-1]["outcome"] if finished else self._newest().failure or "open"
        looks, began_s = self._onlooker.since(self._whole_at), self._began_s()
        end = time.monotonic()
        story.seconds = end - self._whole_at
        bare = bare_spans(records, end - began_s)
        story.bare_s = covered_s(bare, self._whole_at - began_s, end - began_s)
        story.unsafe_s = covered_s(spans_of(looks, end, of_hosts=False), self._whole_at, end)
        story.unspread_s = covered_s(spans_of(looks, end, of_hosts=True), self._whole_at, end)
        story.back += turned_back(records)
        story.losses = [one["loss"] for one in records if one["kind"] == "evaluated" and one["loss"] is not None]
        story.forgotten = [
            {"term": one.term, "first": one.first, "last": one.last, "versions": one.versions}
            for one in forgotten(story.store)
        ]


def _read(store: str) -> list[Record]:
    try:
        return read_log(store)
    except StoreError:  # another term has begun while it was read
        return read_log(store)


def _wait(holds: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + _START_S
    while not holds():
        if time.monotonic() > give_up_at:
            raise ClusterError(f"not within {_START_S:g} s: {what}; look at the output of the Dask workers")
        time.sleep(0.2)
