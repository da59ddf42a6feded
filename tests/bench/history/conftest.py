"""A recorded history made by hand: two shards, a lost server, a checkpoint, and a recovery, all in good order."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

Record = dict[str, Any]
CHECKPOINT = 100_001


class Tale:
    """The files of a history by name, in the making."""

    def __init__(self) -> None:
        self.files: dict[str, list[Record]] = {}
        self._clock = count(1)

    def begin(self, file: str, role: str, **fields: Any) -> None:
        """Begin an actor's file."""
        self.files[file] = []
        own = {"run": "r", "role": role, "name": file, "pid": 100 + len(self.files), "clock": "host", **fields}
        self.note(file, "began", **own)

    def note(self, file: str, kind: str, **fields: Any) -> None:
        """Add a record."""
        at = float(next(self._clock))
        self.files[file].append({"kind": kind, "at": at, "wall": at, **fields})

    def state(self, file: str, kind: str, epoch: int, position: int, content: str, **fields: Any) -> None:
        """Add a record of a copy's state."""
        states = {"digest": content, "state": f"{content}+"}
        self.note(file, kind, **{"epoch": epoch, "position": position, "version": position, **states, **fields})

    def say(self, file: str, kind: str, **fields: Any) -> None:
        """Add what a coordinator puts down."""
        self.note(file, "said", record={"kind": kind, **fields})

    def find(self, file: str, kind: str, **fields: Any) -> Record:
        """Return the only record that is like that."""
        wanted = {"kind": kind, **fields}.items()
        (found,) = [one for one in self.files[file] if wanted <= {**one, **one.get("record", {})}.items()]
        return found

    def write(self, folder: Path) -> Path:
        """Write the files as the recorder does."""
        for name, records in self.files.items():
            text = "".join(f"{json.dumps(record)}\n" for record in records)
            (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return folder


def copies(tale: Tale, shard: int) -> None:
    server, replica = f"server-{shard}", f"replica-{shard}"
    for file in (server, replica):
        tale.begin(file, "copy", life=1, shard=shard, shards=2, serving=file == server)
        tale.state(file, "stands", 1, 0, f"s{shard}p0")


def compute(tale: Tale, position: int, contents: list[str], epochs: list[int], versions: list[int]) -> None:
    """Let both workers pull, and compute gradient `position` of their slots."""
    for slot in (0, 1):
        for shard in (0, 1):
            server = f"server-{shard}" if epochs[shard] == 1 else f"replica-{shard}"
            place = {"epoch": epochs[shard], "version": versions[shard]}
            tale.note(server, "answered", member=f"worker-{slot}", request=position, **place)
            tale.note(f"worker-{slot}", "pulled", shard=shard, **place, digest=contents[shard])
        batch = {"slot": slot, "sequence": position, "ticket": [1, 2 * position + slot]}
        tale.note(f"worker-{slot}", "computes", **batch, digests=list(contents))


def step(tale: Tale, file: str, shard: int, position: int, replica: int, *, epoch: int = 1) -> None:
    """Let a server stage and publish a step, while its replica stands at a position; -1 for no replica."""
    content = f"s{shard}p{position}"
    tale.state(
        file, "staged", epoch, position, content, applied=[[slot, position, f"worker-{slot}"] for slot in (0, 1)]
    )
    lag, in_sync = (position - replica, {f"replica-{shard}": replica}) if replica >= 0 else (0, {})
    tale.state(file, "publish", epoch, position, content, term=1, lag=lag, distance=0.1 * lag, in_sync=in_sync)


def load(tale: Tale, shard: int, position: int) -> None:
    tale.state(f"replica-{shard}", "loaded", 1, position, f"s{shard}p{position}", server=f"server-{shard}", number=1)


def before_the_loss(tale: Tale) -> None:
    stands = [0, 0]
    for position in range(1, 6):
        contents = [f"s{shard}p{position - 1}" for shard in (0, 1)]
        compute(tale, position, contents, [1, 1], [position - 1] * 2)
        tale.say("coordinator-1", "commit", position=position, version=position, slots=[0, 1])
        for shard in (0, 1):
            step(tale, f"server-{shard}", shard, position, stands[shard])
            if position in {2, 3 + shard}:
                load(tale, shard, position)
                stands[shard] = position
            if position == 2:
                tale.state(f"replica-{shard}", "archived", 1, 2, f"s{shard}p2", number=CHECKPOINT)
    tale.say("coordinator-1", "checkpoint", number=CHECKPOINT, version=2, event="complete")


def after_the_loss(tale: Tale) -> None:
    """Shard 0 goes on from position 3: what its server had shown as 4 and 5 is lost."""
    tale.state("replica-0", "serves", 2, 3, "s0p3")
    tale.say("coordinator-1", "promoted", role="server", shard=0, epoch=2, updates_lost=2)
    tale.say("coordinator-1", "lost positions", shard=0, epoch=2, first=4, last=5)
    account = {"term": 1, "lag": 0, "distance": 0.0, "in_sync": {}}
    tale.state("replica-0", "skip", 2, 5, "s0p3", **account)
    before = ["s0p3", "s1p5"]
    for position in (6, 7):
        compute(tale, position, before, [2, 1], [position - 1] * 2)
        step(tale, "replica-0", 0, position, -1, epoch=2)
        if position == 6:
            load(tale, 1, 5)
        step(tale, "server-1", 1, position, 5)
        before = [f"s{shard}p{position}" for shard in (0, 1)]
    tale.say("coordinator-1", "finished", outcome="stopped")


def second_life(tale: Tale) -> None:
    for shard in (0, 1):
        tale.begin(f"again-{shard}", "copy", life=9, shard=shard, shards=2, serving=True)
        tale.state(f"again-{shard}", "stands", 1, 2, f"s{shard}p2")
    tale.begin("coordinator-9", "coordinator", term=9)
    tale.say("coordinator-9", "run", run="r", policy="bsp", workers=2, replication={"mode": "none"})


@pytest.fixture
def tale() -> Tale:
    """Return a history in which every guarantee holds."""
    made = Tale()
    for slot in (0, 1):
        made.begin(f"worker-{slot}", "worker", life=1)
    for shard in (0, 1):
        copies(made, shard)
    made.begin("coordinator-1", "coordinator", term=1)
    replication = {"mode": "bounded", "max_divergence": 2, "unit": "updates"}
    made.say("coordinator-1", "run", run="r", policy="bsp", workers=2, replication=replication)
    for slot in (0, 1):
        made.say("coordinator-1", "joined", slot=slot)
    before_the_loss(made)
    after_the_loss(made)
    second_life(made)
    return made


@pytest.fixture
def violations(tmp_path: Path) -> Callable[[Tale], list[str]]:
    """Write a history, and return what the checker says of it."""
    from psplatform.bench.history import check

    return lambda tale: check(tale.write(tmp_path)).violations
