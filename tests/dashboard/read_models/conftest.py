"""Random logs of every kind of record that the core writes, and how they come into a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random
from typing import Any, Final

import pytest
from hypothesis import strategies as st

from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.log.writer import EventLog

SHARDS: Final = 3
_STORES = count()
_ODD: Final = (None, math.nan, math.inf, -math.inf, 1.7e308, -1.7e308)


@dataclass
class _Author:
    """Makes the fields of records; times and durations are binary fractions, so that sums of them are exact."""

    random: Random
    epochs: list[tuple[str, int, int]] = field(default_factory=list)

    def seconds(self, most: int = 640) -> float:
        return self.random.choice((0, 1, self.random.randint(0, most))) / 64

    def number(self) -> Any:
        return self.random.choice(_ODD) if self.random.random() < 0.1 else self.random.uniform(-3, 3)

    def loss(self) -> float:
        value = self.number()
        return math.nan if value is None else value

    def slots(self) -> list[int]:
        return self.random.sample(range(6), self.random.randint(0, 4))

    def run(self) -> Record:
        self.epochs.clear()
        described = {"run": "r1", "workload": "digits", "policy": "bsp", "workers": 2, "shards": SHARDS}
        since = {"from_version": self.random.randint(1, 9)} if self.random.random() < 0.5 else {}
        network = {"network": {"fabric": {}, "gradient_bytes": 64}} if self.random.random() < 0.5 else {}
        return described | since | network

    def gradient(self) -> Record:
        took = {f"{state}_s": self.seconds() for state in ("pull", "push", "wait")}
        compute_s = self.random.choice((0.25, 10 ** self.random.uniform(-4.9, 2.9)))
        compute_s = math.ceil(compute_s * 2**20) / 2**20
        of = {"slot": self.random.randint(0, 5), "sequence": 0, "label": 0, "loss": self.loss(), "norm": 1.0}
        return of | took | {"compute_s": compute_s}

    def commit(self) -> Record:
        slots, names = self.slots(), self.random.sample(range(20), self.random.randint(0, 3))
        return {
            "position": 1,
            "version": self.random.randint(0, 99),
            "versions": 1,
            "slots": slots,
            "sequences": [0] * len(slots),
            "staleness": [self.random.randint(0, 9) for _ in slots],
            "loss": self.loss(),
            "rate": self.random.uniform(0, 2),
            "duration_s": self.seconds(),
            "reason": "all in",
            **({"decision": {f"k{name}": self.random.uniform(0, 9) for name in names}} if names else {}),
            **self.block(),
        }

    def block(self) -> Record:
        return {"block": self.random.randrange(SHARDS)} if self.random.random() < 0.3 else {}

    def applied(self) -> Record:
        lags = {"divergence": self.random.uniform(0, 2), "lag": self.random.randint(0, 5), "to_replica_bytes": 7}
        by_shard = [[self.random.uniform(0, 2), self.random.randint(0, 5), self.random.randint(0, 999)] for _ in "abc"]
        shown = {"position": 1, "version": self.random.randint(0, 99), "visible_s": self.seconds()}
        told = lags | ({"by_shard": by_shard} if self.random.random() < 0.5 else {})
        return shown | self.block() | (told if self.random.random() < 0.7 else {})

    def dropped(self) -> Record:
        reason = self.random.choice(("stale", "lost", "other", f"stale by {self.random.randint(0, 99)}"))
        where = {"slot": self.random.randint(0, 5), "sequence": 0, "label": self.random.randint(0, 9), "version": 9}
        return where | {"reason": reason, "detail": self.random.choice(("", "label 3"))} | self.block()

    def host(self) -> str:
        return f"host {self.random.randint(0, 5)}"

    def transfer(self) -> Record:
        slots = self.random.sample(range(200), self.random.choice((1, 1, 3, 130)))
        hosts = {"hosts": [self.host() for _ in slots]} if self.random.random() < 0.8 else {}
        planned_s = self.random.choice((None, self.seconds()))
        of = {"slots": slots, "sequences": [1] * len(slots), "took_s": self.seconds(), "planned_s": planned_s}
        return of | {"host": self.host()} | hosts

    def pull(self) -> Record:
        of = {"slot": self.random.randint(0, 5), "sequence": 1, "host": self.host(), "sent": self.random.random() < 0.5}
        seconds = {"took_s": self.seconds(), "planned_s": self.random.choice((None, self.seconds()))}
        return of | {"relay": self.random.choice((None, self.host()))} | seconds

    def servers(self) -> Record:
        return {"hosts": [self.host(), "host of servers"], "bytes": [self.seconds(), self.seconds()]}

    def promoted(self) -> Record:
        shard, epoch = self.random.randint(-1, SHARDS - 1), 2 + len(self.epochs)
        role = "coordinator" if shard < 0 else "server"
        self.epochs.append((role, shard, epoch))
        lost = {"distance_lost": self.random.choice((None, 0.0, 0.5)), "updates_lost": self.random.randint(0, 3)}
        took = {"detected_seconds": self.seconds(), "promoted_seconds": self.seconds(), "bound": 0.5, "unit": "norm"}
        signal = self.random.choice(("closed connection", "silent; nothing heard", "retired"))
        copy = f"server-{shard}-{self.random.randint(0, 4)}"
        of = {"role": role, "shard": shard, "epoch": epoch, "copy": copy, "process": "tcp://b:1", "signal": signal}
        return of | lost | took

    def resumed(self) -> Record:
        role, shard, epoch = self.random.choice(self.epochs or [("server", 0, 9)])
        return {"role": role, "shard": shard, "epoch": epoch, "first_commit_seconds": self.seconds()}

    def copy(self) -> Record:
        event, shard = self.random.choice(("ready", "in sync", "out of sync", "lost")), self.random.randrange(SHARDS)
        copy = f"server-{shard}-{self.random.randint(0, 4)}"
        return {"shard": shard, "copy": copy, "process": "tcp://b:1", "event": event, "reason": "so it is"}

    def checkpoint(self) -> Record:
        event = self.random.choice(("complete", "failed", "abandoned"))
        figures = {"number": self.random.randint(1, 9), "version": 4, "seconds": self.seconds(), "bytes": 80}
        return figures | {"event": event, "reason": "no space left"}

    def metrics(self) -> Record:
        return {f"m{one}": self.number() or 0.5 for one in range(self.random.choice((0, 2, 11)))}

    def process(self) -> Record:
        slot, incarnation = self.random.randint(0, 5), self.random.randint(1, 3)
        return {"slot": slot, "incarnation": incarnation, "process": "tcp://a:1", "clock": 0, "reason": "closed"}

    def start(self) -> Record:
        return {"slot": self.random.randint(0, 5), "sequence": 0, "version": 0, "clock": 0, "min_clock": 0}

    def others(self, kind: str) -> Record:
        shard = self.random.randrange(SHARDS)
        return {
            "aborted": {"slot": 0, "sequence": 1, "latency_s": self.seconds()},
            "evaluated": {"version": 1, "loss": self.number(), "accuracy": self.random.choice((None, 0.5)),
                          "metrics": self.metrics()},
            "protection": {"shards": sorted(self.random.sample(range(SHARDS), self.random.randint(0, SHARDS)))},
            "lost positions": {"shard": shard, "epoch": 2, "first": 4, "last": 6},
            "beyond bound": {"shard": shard, "version": 5, "step": 0.9, "bound": 0.5},
            "note": {"text": self.random.choice(("", "hello"))},
            "cold replica": {"text": "cannot keep its state"},
            "finished": {"outcome": "updates", "detail": "1 of 1", "version": 1, "loss": None, "accuracy": None,
                         "seconds": 3.5},
            "rebalanced": {"slot": "a kind of a newer version"},
        }[kind]  # fmt: skip

    def fields(self, kind: str) -> Record:
        if kind in ("joined", "lost", "left"):
            return self.process()
        make: Callable[[], Record] | None = getattr(self, kind, None)
        return self.others(kind) if make is None else make()


_KINDS: Final = (
    *("joined", "lost", "left", "start", "gradient", "commit", "applied", "dropped", "promoted", "resumed"),
    *("copy", "checkpoint", "aborted", "evaluated", "protection", "lost positions", "beyond bound", "note"),
    *("cold replica", "finished", "rebalanced", "gradient", "gradient", "commit", "applied", "protection"),
    *("transfer", "pull", "servers", "transfer"),
)
_GAPS_S: Final = (0.0, 0.0, 1 / 1024, 0.25, 5.75, 70.5, -1 / 64)
_REPEATS: Final = (*(1 for _ in range(10)), 3, 650)


def _composed(lives: Sequence[Sequence[int]]) -> list[Record]:
    """Make a record, or many of a kind, of each number."""
    records: list[Record] = []
    author = _Author(Random(0))
    for life in lives:
        at = 0.0
        records += [{"kind": "run", "at": at, **author.run()}] * bool(records or life[0] % 2)
        for seed in life:
            author.random = Random(seed)
            kind, gap_s = author.random.choice(_KINDS), author.random.choice(_GAPS_S)
            repeat = author.random.choice(_REPEATS)
            for _ in range(repeat):
                at = max(0.0, math.floor((at + gap_s / repeat) * 1024) / 1024)
                records.append({"kind": kind, "at": at, **author.fields(kind)})
    return records


@pytest.fixture(scope="session")
def any_log() -> st.SearchStrategy[list[Record]]:
    """Records of a run, of several lives perhaps; some kinds come often enough that curves are thinned."""
    life = st.lists(st.integers(0, 2**20), min_size=5, max_size=16)
    return st.lists(life, max_size=3).map(_composed)


@pytest.fixture(scope="session")
def any_segments(any_log: st.SearchStrategy[list[Record]]) -> st.SearchStrategy[list[list[Record]]]:
    """The records of a run, cut into segments anywhere."""

    def cut(records: list[Record], at: list[int]) -> list[list[Record]]:
        edges = sorted({0, len(records), *(place % (len(records) + 1) for place in at)})
        return [records[begin:end] for begin, end in pairwise(edges)]

    return st.builds(cut, any_log, st.lists(st.integers(0, 2**16), max_size=8))


@pytest.fixture(scope="session")
def new_store() -> Callable[[], str]:
    """Name a store in memory that nobody has used."""
    return lambda: f"memory://rows-{next(_STORES)}"


@pytest.fixture(scope="session")
def opened() -> Callable[..., EventLog]:
    """Open a log for writing that makes a segment of what was buffered whenever it is flushed, and never else."""
    return lambda store, term=1, **after: EventLog(store, term, flush_records=10**9, flush_seconds=1e9, **after)


@pytest.fixture(scope="session")
def write() -> Callable[[EventLog, Sequence[Record]], None]:
    """Bring out some records as the next segment."""

    def one(log: EventLog, records: Sequence[Record]) -> None:
        for record in records:
            log.buffer(record)
        log.flush()

    return one
