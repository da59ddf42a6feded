"""The files of a recorded history, put together: lives of runs, their actors, and the order of steps of each shard.

Nothing here is taken from `psplatform.core`: what the run's own parts say of positions, epochs and replicas is
compared, not trusted.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Record = dict[str, Any]

Gradient = tuple[int, int, str]
"""Slot, sequence, and the worker: a coordinator that is cut off and replaced may go on giving out slots."""

_SHOWN = frozenset({"publish", "skip"})


@dataclass(frozen=True)
class Actor:
    """One file: what an actor said first, and all that it recorded after."""

    began: Record
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """Of the actor."""
        return str(self.began["name"])

    @property
    def clock(self) -> str:
        """Whose monotonic clock its times are of."""
        return str(self.began["clock"])

    def of(self, kind: str) -> list[Record]:
        """Return its records of a kind, in their order."""
        return self._by_kind[kind]

    @cached_property
    def stands(self) -> list[Record]:
        """Where a copy stood, in the order of time: at first, and after each transfer that it has loaded."""
        found = [one for one in self.records if one["kind"] in ("stands", "loaded")]
        return sorted(found, key=lambda one: float(one["at"]))

    @cached_property
    def _by_kind(self) -> dict[str, list[Record]]:
        return _sorted_by_kind(self.records)


@dataclass
class Epoch:
    """One server of a shard, and what it did as such.

    Attributes
    ----------
    began
        What it stood at when it became the server.
    staged
        Its steps by position.
    shown
        What it showed, in its order: steps, and positions that are lost.
    """

    number: int
    copy: Actor
    began: Record
    staged: dict[int, Record] = field(default_factory=dict)
    shown: list[Record] = field(default_factory=list)

    def state_at(self, position: int) -> Record | None:
        """Return what it recorded of its state right after a position: a step, or one that it passed over."""
        if position == self.began["position"]:
            return self.began
        return self.staged.get(position) or self._passed.get(position)

    @cached_property
    def _passed(self) -> dict[int, Record]:
        return {int(one["position"]): one for one in self.shown if one["kind"] == "skip"}

    @property
    def last(self) -> int:
        """The last position that it has shown."""
        return max([int(self.began["position"]), *(int(one["position"]) for one in self.shown)])


@dataclass
class Life:
    """A run from its start, or a recovery, until it ended or everything was lost.

    Attributes
    ----------
    term
        Of its first coordinator.
    """

    run: str
    term: int
    copies: list[Actor] = field(default_factory=list)
    workers: list[Actor] = field(default_factory=list)
    coordinators: list[Actor] = field(default_factory=list)

    @cached_property
    def said(self) -> list[Record]:
        """What coordinators put down, in the order of their terms."""
        ordered = sorted(self.coordinators, key=lambda one: int(one.began["term"]))
        return [one["record"] for actor in ordered for one in actor.of("said")]

    def of_kind(self, kind: str) -> list[Record]:
        """Return what coordinators put down of a kind."""
        return self._said_by_kind[kind]

    @cached_property
    def _said_by_kind(self) -> dict[str, list[Record]]:
        return _sorted_by_kind(self.said)

    @property
    def description(self) -> Record:
        """What the coordinator said of the run when it began."""
        return next(iter(self.of_kind("run")), {})

    @property
    def per_block(self) -> bool:
        """Whether each shard has an order of its own."""
        return any("block" in one for one in self.of_kind("commit"))

    @cached_property
    def shards(self) -> int:
        """Number of shards."""
        return max((int(one.began["shards"]) for one in self.copies), default=0)

    @cached_property
    def epochs(self) -> dict[int, list[Epoch]]:
        """By shard, its servers in the order of their epochs; more than one of an epoch is a violation."""
        found: dict[int, list[Epoch]] = {shard: [] for shard in range(self.shards)}
        for copy in self.copies:
            for epoch in _epochs(copy):
                found[int(copy.began["shard"])].append(epoch)
        return {shard: sorted(of, key=lambda one: one.number) for shard, of in found.items()}

    @cached_property
    def showings(self) -> dict[tuple[int, int, int], list[tuple[Epoch, Record]]]:
        """By shard, number of the epoch and version, where it was shown: what a server began with, or a step."""
        found: dict[tuple[int, int, int], list[tuple[Epoch, Record]]] = defaultdict(list)
        for shard, epochs in self.epochs.items():
            for epoch in epochs:
                for one in (epoch.began, *epoch.shown):
                    if "version" in one:
                        found[shard, epoch.number, int(one["version"])].append((epoch, one))
        return found

    def kept(self, shard: int) -> list[tuple[Epoch, int]]:
        """Return each server of a shard with the last of its positions that the history kept, in their order."""
        kept: list[tuple[Epoch, int]] = []
        end = math.inf
        for epoch in reversed(self.epochs[shard]):
            own = epoch.last if end is math.inf else max([int(epoch.began["position"]), *epoch.staged])
            kept.append((epoch, int(min(end, own))))
            end = min(end, int(epoch.began["position"]))
        return kept[::-1]

    def line(self, shard: int) -> dict[int, Record]:
        """Return the steps that the shard's history kept, by position."""
        return {
            position: step
            for epoch, last in self.kept(shard)
            for position, step in sorted(epoch.staged.items())
            if position <= last
        }

    @cached_property
    def computed(self) -> dict[Gradient, Record]:
        """What was computed."""
        return {
            (int(one["slot"]), int(one["sequence"]), worker.name): one
            for worker in self.workers
            for one in worker.of("computes")
        }


def applied(step: Record) -> list[Gradient]:
    """Return the gradients of a step."""
    return [(int(slot), int(sequence), str(member)) for slot, sequence, member in step["applied"]]


def _sorted_by_kind(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for one in records:
        found[one["kind"]].append(one)
    return found


def _epochs(copy: Actor) -> Iterator[Epoch]:
    """Yield each time at which a copy was the server."""
    current: Epoch | None = None
    for one in copy.records:
        if one["kind"] == "serves" or (one["kind"] == "stands" and copy.began["serving"]):
            if current is not None:
                yield current
            current = Epoch(int(one["epoch"]), copy, one)
        elif current is not None and one["kind"] == "staged":
            # A second step at a position must not hide the first.
            at = int(one["position"])
            if at in current.staged:
                current.shown.append({**one, "kind": "staged twice"})
            current.staged.setdefault(at, one)
        elif current is not None and one["kind"] in _SHOWN:
            current.shown.append(one)
    if current is not None:
        yield current


def read(folder: str | Path) -> tuple[list[Life], list[str]]:
    """Return the lives of all runs in a folder, in the order of runs and terms, and what is wrong with the files."""
    flaws: list[str] = []
    actors = [actor for path in sorted(Path(folder).glob("*.jsonl")) if (actor := _actor(path, flaws)) is not None]
    lives: dict[tuple[str, int], Life] = {}
    for actor in (one for one in actors if one.began["role"] != "coordinator"):
        key = str(actor.began["run"]), int(actor.began["life"])
        life = lives.setdefault(key, Life(*key))
        (life.copies if actor.began["role"] == "copy" else life.workers).append(actor)
    for actor in (one for one in actors if one.began["role"] == "coordinator"):
        run, term = str(actor.began["run"]), int(actor.began["term"])
        own = max((start for of, start in lives if of == run and start <= term), default=term)
        lives.setdefault((run, own), Life(run, own)).coordinators.append(actor)
    return [lives[key] for key in sorted(lives)], flaws


def _actor(path: Path, flaws: list[str]) -> Actor | None:
    records: list[Record] = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            if line:
                records.append(json.loads(line))
        except ValueError:
            if number < len(lines):  # the last one was cut off when its process was killed
                flaws.append(f"{path.name}:{number} is no record")
    if not records:
        return None
    if records[0].get("kind") != "began":
        flaws.append(f"{path.name} does not begin with what its actor is")
        return None
    return Actor(records[0], tuple(records[1:]))
