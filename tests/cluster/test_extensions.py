"""What is added at one place works in whole runs: a transport, a way of replicating, an effect.

The cluster is in this process, so that what a test adds is there in every role.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from distributed import Client

import psplatform as ps
from psplatform.core.protocol.effects import Effect, Transmit
from psplatform.core.protocol.events import Computed
from psplatform.core.protocol.messages import Replicated
from psplatform.core.workers.session import WorkerSession
from psplatform.jobs.replication import Target
from psplatform.nodes import worker
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer
from psplatform.runtime.dataplane.carriers import REPLICA_PLACES, ReplicaPlace
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.pulls.content import Content
from psplatform.runtime.dataplane.replicas.outbox import Outbox, Sizes
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import TRANSPORTS, Comms
from psplatform.runtime.program import Program
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard

StartHere = Callable[..., AbstractContextManager[Client]]
UPDATES, WORKERS, LIMIT_S = 12, 2, 120.0


def test_every_word_of_a_job_has_its_class() -> None:
    assert set(REPLICA_PLACES) == set(get_args(Target))
    assert set(TRANSPORTS) == set(get_args(ps.Job.model_fields["transport"].annotation))


@pytest.fixture(scope="module")
def here(start_here: StartHere) -> Iterator[Client]:
    """Start four Dask workers in this process."""
    with start_here(workers=4, threads=2) as client:
        yield client


def job(**fields: Any) -> ps.Job:
    """Return a short job whose result is the same in every run."""
    return ps.Job(workload="digits", policy="bsp", workers=WORKERS, stop=ps.Stop(updates=UPDATES), **fields)


@pytest.fixture
def train(here: Client, tmp_path: Path) -> Callable[..., Mapping[str, Any]]:
    """Train to the end; return the summary."""

    def train(**fields: Any) -> Mapping[str, Any]:
        with ps.train(job(store=str(tmp_path / "store"), **fields), here) as run:
            return run.wait(LIMIT_S)

    return train


class CountingComms(Comms):
    """A transport that counts what it is asked for."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()

    def publisher(self, layout: Layout, shard: int, run: str, epoch: int) -> Content:
        self.made["publisher"] += 1
        return super().publisher(layout, shard, run, epoch)

    def view(self, layout: Layout, shard: int, name: SegmentName) -> Content | None:
        self.made["view"] += 1
        return super().view(layout, shard, name)

    def slab(self, layout: Layout, run: str, *, with_copy: bool) -> Slab:
        self.made["slab"] += 1
        return super().slab(layout, run, with_copy=with_copy)

    def outbox(self, run: str, role: str, sizes: Sizes) -> Outbox:
        self.made["outbox"] += 1
        return super().outbox(run, role, sizes)


def test_a_transport_is_one_class(train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place where arrays lie is made by it, and nothing else has to know it."""

    def open_content(*_arguments: Any) -> None:
        raise AssertionError("a view was not asked of the transport")

    monkeypatch.setattr(Content, "open", open_content)
    transport = CountingComms()
    monkeypatch.setitem(TRANSPORTS, "comms", transport)
    summary = train(transport="comms", replication=ps.Chain())
    assert summary["updates"] == UPDATES
    assert transport.made["publisher"] >= 2, "the server's and its replica's"
    assert transport.made["slab"] >= WORKERS
    assert transport.made["outbox"] >= 1
    assert transport.made["view"] >= WORKERS


class OnlyCounts:
    """A way of replicating that keeps nothing."""

    def __init__(
        self, program: Program, name: str, shard: Shard, background: Background, on_trouble: Callable[[str], None]
    ) -> None:
        self.transfers = 0
        self._background = background

    def know(self, replica: str, peer: Peer) -> None:
        """Nobody is sent anything."""

    def prepare(self, replica: str) -> None:
        """Nothing is captured."""

    def capture(self, effect: Transmit) -> int:
        self.transfers += 1
        return 1

    def send(
        self, connect: Connect, effect: Transmit, slabs: Mapping[str, SegmentName], feed: Callable[[Any], None]
    ) -> None:
        self._background.do(self._acknowledge(effect, feed))

    async def _acknowledge(self, effect: Transmit, feed: Callable[[Any], None]) -> None:
        await asyncio.sleep(0.001)  # as any answer, it comes after the server knows that the transfer was captured
        one = effect.transfer
        feed(Replicated(one.shard, effect.replica, one.epoch, one.number, one.position))

    def forget(self, replica: str) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is under way."""


def test_a_way_of_replicating_is_one_class(train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a bound of 0, each version waits for its transfer: that the run ends shows that they were answered."""
    made: list[OnlyCounts] = []

    def make(*arguments: Any) -> OnlyCounts:
        made.append(OnlyCounts(*arguments))
        return made[-1]

    monkeypatch.setitem(REPLICA_PLACES, "replica", ReplicaPlace(make, replicas_archive=False))
    summary = train(replication=ps.Chain())
    assert summary["updates"] == UPDATES
    assert sorted(one.transfers for one in made) == [0, UPDATES], "the replica sends none"
    assert summary["to_replica_bytes"] == UPDATES


@dataclass(frozen=True, slots=True)
class Whistle:
    """An effect: tell that a gradient is there."""

    sequence: int


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Have workers whistle: an effect is its class, what asks for it, and a line in the table of that role's node."""
    heard: Counter[int] = Counter()
    handle = WorkerSession.handle

    def asking(session: WorkerSession, event: Any, now: float) -> list[Effect]:
        whistles: list[Any] = [Whistle(event.sequence)] if isinstance(event, Computed) else []
        return [*handle(session, event, now), *whistles]

    monkeypatch.setattr(WorkerSession, "handle", asking)
    monkeypatch.setitem(worker._EXECUTE, Whistle, lambda node, effect: heard.update([effect.sequence]))
    return heard


def test_an_effect_is_executed_on_a_cluster(train: Callable[..., Any], heard: Counter[int]) -> None:
    assert train()["updates"] == UPDATES
    assert sum(heard.values()) >= WORKERS * UPDATES


def test_the_same_effect_is_executed_in_the_simulator(heard: Counter[int]) -> None:
    ps.simulate(job())
    assert sum(heard.values()) >= WORKERS * UPDATES
