"""Gradients summed on their way: parts reach who sums them, sums reach whoever serves, and what is over is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from psplatform.core.protocol.effects import ForgetParts, ForgetSum, SendPart, SumUp
from psplatform.core.protocol.events import PartArrived, SumReachable
from psplatform.core.protocol.messages import Assemble, Bundle, Contribution
from psplatform.core.protocol.wire import decode
from psplatform.runtime.actors.worker.sums import SlabSums
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.gradients.parts import Parts
from psplatform.runtime.dataplane.gradients.pushing import Pushes
from psplatform.runtime.dataplane.replicas.replica_feed import NoReplicaFeed
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate

Jump = Callable[[Any], Any]
HERE, THERE = Bundle("w", 1, 7), Bundle("other", 1, 7)
KEY, COUNTER = "parameter.float32", "buffer.int64"


def gradient(member: str, sequence: int = 5, bundle: Bundle = HERE) -> Contribution:
    return Contribution(member, "wxyz".index(member), sequence, None, bundle)


def filled(layout: Layout, value: float) -> list[Any]:
    """Return a whole gradient of one value, as it is sent."""
    vectors = allocate(layout)
    for vector in vectors.values():
        vector.fill_(value)
    return [vector.numpy() for vector in vectors.values()]


class Servers:
    """Names the servers of two shards."""

    def __init__(self) -> None:
        self.names = ["server-0", "server-1"]

    def server_of(self, shard: int) -> str:
        return self.names[shard]


class Noting(NoReplicaFeed):
    """Notes what replicas are offered."""

    def __init__(self) -> None:
        self.sums: list[tuple[Any, list[str]]] = []

    def offer_sum(self, order: Any, pushes: Pushes) -> None:
        self.sums.append((order, pushes.servers))


class Worker:
    """The sums of the worker `w`, what came of them, and what others were sent: actor, method and arguments."""

    def __init__(self, network: Any, layout: Layout, peer: Peer, slab: Slab) -> None:
        self.told, self.sent, self.mishaps = list[Any](), list[tuple[str, str, tuple[Any, ...]]](), list[str]()
        self.servers, self.slab, self.replicas = Servers(), slab, Noting()
        self.takes: Callable[[str, tuple[Any, ...]], Any] = lambda method, arguments: True
        places = {name: replace(peer, key=name) for name in ("server-0", "server-1", "replica-1-0")}
        self.workers: dict[str, Peer] = {"other": replace(peer, key="other")}
        self.background = Background(self.mishaps.append)
        connect = network(self._take)
        self._connect = connect

        def make_pushes(vectors: Any) -> Pushes:
            return Pushes(connect, layout, "w", vectors, places, self.servers.server_of, self.background)

        arguments = self.replicas, connect, self.workers, make_pushes, self.background
        self.sums = SlabSums("w", layout, slab, *arguments, feed=self.told.append)

    def _take(self, method: str, *arguments: Any) -> Any:
        self.sent.append((self._connect.calls[-1][1], method, arguments))
        return self.takes(method, arguments)

    def part(self, layout: Layout, member: str, value: float, sequence: int = 5) -> None:
        assert self.sums.take_part(PartArrived(HERE, member, sequence), None, filled(layout, value))

    def pushed(self) -> list[tuple[str, int, float]]:
        """Who was sent which bundle's sum, with its first number."""
        found = [(actor, decode(given[1]), given[2]) for actor, method, given in self.sent if method == "push_sum"]
        return [(actor, order.number, float(arrays[0][0])) for actor, order, arrays in found]


Make = Callable[..., Worker]


@pytest.fixture
def make(network: Any, layout: Layout, peer: Peer) -> Make:
    """Make a worker's sums without a process."""

    def worker(slab: Slab | None = None) -> Worker:
        return Worker(network, layout, peer, slab or Slab.create(layout, "none", shared=False))

    return worker


@pytest.fixture
def shared(layout: Layout, run_id: str) -> Iterator[Slab]:
    slab = Slab.create(layout, run_id, shared=True)
    yield slab
    slab.remove()


# --- a part of this worker ---


def test_what_a_worker_sums_itself_is_sent_nowhere(make: Make, jump: Jump) -> None:
    async def send() -> Worker:
        worker = make()
        worker.sums.send_part(SendPart(0, 5, HERE))
        await asyncio.sleep(9.0)
        return worker

    worker = jump(send())
    assert (worker.told, worker.sent) == ([PartArrived(HERE, "w", 5)], [])


def test_a_part_is_sent_with_what_it_is_a_part_of(make: Make, layout: Layout, jump: Jump) -> None:
    async def send() -> Worker:
        worker = make()
        for vector in worker.slab.vectors.values():
            vector.fill_(3)
        worker.sums.send_part(SendPart(0, 5, THERE))
        await asyncio.sleep(9.0)
        return worker

    ((actor, method, (part, bundle, name, arrays)),) = (worker := jump(send())).sent
    assert (actor, method, part, bundle, name) == ("other", "take_part", ("w", 5), (1, 7), None)
    assert [array.tolist() for array in arrays] == [array.tolist() for array in filled(layout, 3)]
    assert (worker.told, worker.mishaps) == ([], [])


@pytest.mark.parametrize("sees", [True, False], ids=["seen", "not seen"])
def test_a_part_that_can_be_seen_where_it_lies_is_not_copied(make: Make, shared: Slab, jump: Jump, sees: bool) -> None:
    async def send() -> Worker:
        worker = make(shared)
        worker.takes = lambda method, given: given[3] is not None or sees
        worker.sums.send_part(SendPart(0, 5, THERE))
        await asyncio.sleep(9.0)
        return worker

    sent = [(given[2] is not None, given[3] is not None) for _, _, given in jump(send()).sent]
    assert sent == ([(True, False)] if sees else [(True, False), (False, True)])
    assert shared.holds(5)


@pytest.mark.parametrize("trouble", ["unknown", "gone", "not open"])
def test_a_part_is_sent_until_it_is_taken(make: Make, peer: Peer, jump: Jump, trouble: str) -> None:
    async def send() -> tuple[int, Worker]:
        worker = make()

        def refuse(*_given: Any) -> bool:
            if trouble == "gone":
                raise OSError
            return False

        if trouble == "unknown":
            worker.workers.clear()
        worker.takes = refuse
        worker.sums.send_part(SendPart(0, 5, THERE))
        await asyncio.sleep(9.0)
        before = len(worker.sent)
        worker.workers["other"], worker.takes = replace(peer, key="other"), lambda *given: True
        await asyncio.sleep(9.0)
        return before, worker

    before, worker = jump(send())
    assert len(worker.sent) == before + 1
    assert worker.mishaps == []


@pytest.mark.parametrize("then", ["end", "another"])
def test_a_part_is_sent_no_more_once_something_else_becomes_of_it(make: Make, jump: Jump, then: str) -> None:
    async def send() -> list[int]:
        worker = make()
        worker.takes = lambda *given: False
        worker.sums.send_part(SendPart(0, 5, THERE))
        await asyncio.sleep(1.0)
        if then == "end":
            worker.sums.end()
        else:
            worker.sums.send_part(SendPart(0, 5, replace(THERE, number=8)))
        worker.sent.clear()
        await asyncio.sleep(1.0)
        return [given[1][1] for _, _, given in worker.sent]

    numbers = set(jump(send()))
    assert numbers == (set() if then == "end" else {8})


# --- what is summed ---


def test_parts_are_added_in_the_order_that_is_said_and_every_server_gets_its_piece(
    make: Make, layout: Layout, jump: Jump
) -> None:
    """In float32 an eighth of a unit in the last place is lost next to a large number, not beside another one."""

    async def summed(*order: str) -> tuple[Worker, list[Any]]:
        worker, loop = make(), asyncio.get_running_loop()
        worker.takes = lambda method, given: slowly()
        for member, value in (("x", 2.0**24), ("y", 1.0), ("z", 1.0)):
            worker.part(layout, member, value)
        worker.told.clear()
        worker.sums.sum_up(SumUp(HERE, tuple(map(gradient, order))))
        await asyncio.sleep(1.0)
        assert loop.time() >= 1.0
        return worker, [arrays for _, _, (_, _, arrays) in worker.sent]

    async def slowly() -> bool:
        await asyncio.sleep(0.25)
        return True

    worker, (first, second) = jump(summed("y", "z", "x"))
    assert sorted(actor for actor, _, _ in worker.sent) == ["server-0", "server-1"]
    orders = {given[1] for _, _, given in worker.sent}
    assert [decode(one) for one in orders] == [Assemble(1, 7, tuple(map(gradient, "yzx")))]
    assert worker.told == [SumReachable(HERE, 0.25)]
    whole = torch.cat([torch.from_numpy(first[0]), torch.from_numpy(second[0])])
    assert whole.tolist() == [2.0**24 + 2] * len(whole)
    assert len(worker.replicas.sums) == 1, "replicas are offered it as well"
    _, (first, _) = jump(summed("x", "y", "z"))
    assert first[0].tolist() == [2.0**24] * len(first[0])


def test_of_a_bundle_that_was_forgotten_nothing_is_summed(make: Make, layout: Layout, jump: Jump) -> None:
    async def course() -> Worker:
        worker = make()
        worker.part(layout, "x", 1.0)
        worker.sums.forget(ForgetParts(HERE))
        worker.told.clear()
        worker.sums.sum_up(SumUp(HERE, (gradient("x"),)))
        await asyncio.sleep(1.0)
        return worker

    worker = jump(course())
    assert (worker.told, worker.sent, worker.mishaps) == ([], [], [])


def test_what_a_server_was_sent_its_successor_is_sent_until_the_sum_is_over(
    make: Make, layout: Layout, jump: Jump
) -> None:
    async def course() -> Worker:
        worker = make()
        worker.part(layout, "x", 1.0)
        worker.part(layout, "y", 2.0)
        worker.sums.sum_up(SumUp(HERE, (gradient("x"), gradient("y"))))
        await asyncio.sleep(1.0)
        worker.sent.clear()
        worker.sums.forget(ForgetParts(HERE))
        worker.servers.names[1] = "replica-1-0"
        worker.sums.redirect(1)
        await asyncio.sleep(1.0)
        assert worker.pushed() == [("replica-1-0", 7, 3.0)]
        worker.sums.forget_sum(ForgetSum(HERE))
        worker.servers.names[1] = "server-1"
        worker.sums.redirect(1)
        await asyncio.sleep(1.0)
        return worker

    worker = jump(course())
    assert len(worker.pushed()) == 1
    assert worker.mishaps == []


def test_a_sum_that_is_given_up_is_sent_no_more_and_not_reported(make: Make, layout: Layout, jump: Jump) -> None:
    async def course() -> tuple[int, Worker]:
        worker = make()
        worker.takes = lambda *given: False
        worker.part(layout, "x", 1.0)
        worker.told.clear()
        worker.sums.sum_up(SumUp(HERE, (gradient("x"),)))
        await asyncio.sleep(1.0)
        worker.sums.forget_sum(ForgetSum(HERE))
        before = len(worker.sent)
        worker.takes = lambda *given: True
        await asyncio.sleep(5.0)
        return before, worker

    before, worker = jump(course())
    assert len(worker.sent) == before > 2
    assert (worker.told, worker.mishaps) == ([], [])


# --- parts that are read where they lie ---


def test_a_part_is_read_where_it_lies_unless_it_was_written_over(layout: Layout, shared: Slab) -> None:
    parts = Parts(layout)
    for vector in shared.vectors.values():
        vector.fill_(2)
    shared.hold(5)
    assert shared.name is not None
    assert parts.see(HERE, "x", 5, shared.name)
    parts.take(HERE, "y", 5, filled(layout, 3.0))
    total = parts.add_up(HERE, (gradient("x"), gradient("y")))
    assert total is not None
    assert (total[KEY].unique().tolist(), total[COUNTER].tolist()) == ([5.0], [3])
    shared.hold(6)
    assert parts.add_up(HERE, (gradient("x"), gradient("y"))) is None


def test_a_part_that_is_written_over_while_it_is_read_makes_no_sum(
    layout: Layout, shared: Slab, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(layout)
    shared.hold(5)
    assert shared.name is not None
    assert parts.see(HERE, "x", 5, shared.name)
    monkeypatch.setattr("psplatform.runtime.dataplane.gradients.parts.add_up", lambda *given: shared.begin())
    assert parts.add_up(HERE, (gradient("x"),)) is None


def test_a_slab_of_another_host_is_not_seen(layout: Layout, shared: Slab) -> None:
    assert shared.name is not None
    assert not Parts(layout).see(HERE, "x", 5, replace(shared.name, path="/nowhere/psplatform-x"))


def test_the_memory_of_a_worker_that_is_gone_is_given_up(layout: Layout, shared: Slab) -> None:
    parts = Parts(layout)
    assert shared.name is not None
    assert parts.see(HERE, "x", 5, shared.name)
    shared.remove()
    parts.forget(HERE)
    assert not parts._slabs
