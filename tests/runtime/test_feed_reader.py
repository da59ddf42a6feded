"""Replicas that take gradients from the workers: what they read, what is pushed to them, and what they wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import torch

from psplatform.core.protocol.effects import Load
from psplatform.core.protocol.messages import GRADIENTS, STATE, Bundle, Contribution, Replicated, Transfer
from psplatform.core.protocol.wire import decode
from psplatform.core.shards.replica import Replica
from psplatform.jobs.optimizers import SGD, Adam
from psplatform.runtime.actors.copy_host import CopyHost
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.dataplane.gradients.gradient_buffers import GradientBuffers, Slab
from psplatform.runtime.dataplane.gradients.pushing import Exposed, Pushes, Summed
from psplatform.runtime.dataplane.replicas.feed_reader import MOST_KEPT, FeedReader
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.runtime.dataplane.replicas.receiver import Receiver
from psplatform.runtime.dataplane.replicas.replica_feed import ReplicaFeed
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.compression import UNPACKED
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, shard_vectors

Jump = Callable[[Any], Any]
MOMENTUM = SGD(lr=1.0, momentum=0.9)


def named(*members: str, sequence: int = 5, server: str = "s", number: int = 1, **fields: Any) -> Transfer:
    contributions = tuple(Contribution(member, slot, sequence) for slot, member in enumerate(members))
    return Transfer(server, 0, 1, number, GRADIENTS, 1, 1, 0.5, (), contributions=contributions, **fields)


def pieces(layout: Layout, value: float) -> dict[str, torch.Tensor]:
    whole = allocate(layout)
    for vector in whole.values():
        vector.fill_(value)
    return shard_vectors(layout, 0, whole)


def sent(layout: Layout) -> list[Any]:
    return UNPACKED.pack(pieces(layout, 0.0))


def new_shard(layout: Layout, optimizer: Any = MOMENTUM) -> Shard:
    start = shard_vectors(layout, 0, allocate(layout))
    return Shard(layout, 0, optimizer, start, (allocate(layout, 0), allocate(layout, 0)))


@pytest.fixture
def gradient_buffers(layout: Layout) -> GradientBuffers:
    return GradientBuffers(layout, 0)


@pytest.fixture
def feed_reader(layout: Layout, gradient_buffers: GradientBuffers) -> FeedReader:
    return FeedReader(gradient_buffers, new_shard(layout))


# --- taking a step ---


def test_a_replica_takes_the_step_that_its_server_took(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    gradient_buffers.keep("a", 5, pieces(layout, 1.0))
    gradient_buffers.keep("b", 5, pieces(layout, 4.0))
    server, replica = new_shard(layout), new_shard(layout)
    for _ in range(2):
        server.gather([gradient_buffers.find("a", 5) or {}, gradient_buffers.find("b", 5) or {}])
        server.scale(0.5)
        server.stage(0.5)
        server.publish(server.version + 1)
        receiver = Receiver(replica, FeedReader(gradient_buffers, replica))
        assert receiver.load(named("a", "b", factor=0.5), lambda: None)
    assert all(torch.equal(one, server.state()[name]) for name, one in replica.state().items())


@pytest.mark.parametrize("gone", ["before", "meanwhile"])
def test_a_step_of_which_a_gradient_is_gone_is_not_taken(
    layout: Layout, gradient_buffers: GradientBuffers, monkeypatch: pytest.MonkeyPatch, run_id: str, gone: str
) -> None:
    slab = Slab.create(layout, run_id, shared=True)
    slab.hold(5)
    assert gradient_buffers.attach("a", slab.name)
    replica = new_shard(layout)
    if gone == "before":
        slab.hold(6)
    else:
        gather = Shard.gather
        monkeypatch.setattr(Shard, "gather", lambda *given, **how: (gather(*given, **how), slab.begin()))
    before = {name: vector.clone() for name, vector in replica.state().items()}
    begun: list[int] = []
    assert not Receiver(replica, FeedReader(gradient_buffers, replica)).load(named("a"), lambda: begun.append(1))
    slab.remove()
    assert begun == []
    assert not replica.staged
    assert all(torch.equal(one, before[name]) for name, one in replica.state().items())


# --- the copy beside a slab ---


def filled(slab: Slab, value: float, sequence: int) -> None:
    """Compute a gradient of that value into a slab."""
    slab.begin()
    for vector in slab.vectors.values():
        vector.fill_(value)
    slab.hold(sequence)


def first(vectors: Any) -> float:
    return float(vectors["parameter.float32"][0])


def test_who_comes_late_reads_the_last_gradient_while_the_worker_computes_the_next(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    slab = Slab.create(layout, run_id, shared=True, with_copy=True)
    assert gradient_buffers.attach("a", slab.name)
    filled(slab, 1.0, sequence=5)
    slab.keep_copy(5)
    filled(slab, 2.0, sequence=6)
    assert gradient_buffers.find("a", 5) is None, "a server reads what lies where its worker waits for it"
    assert first(gradient_buffers.find("a", 5, late=True)) == 1.0
    assert first(gradient_buffers.find("a", 6, late=True)) == 2.0
    replica = new_shard(layout)
    assert FeedReader(gradient_buffers, replica).gather(named("a"))
    assert first(replica.gathered) == 1.0
    slab.keep_copy(6)
    assert gradient_buffers.find("a", 5, late=True) is None
    slab.remove()


def test_what_is_written_over_while_it_is_copied_is_no_copy(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    slab = Slab.create(layout, run_id, shared=True, with_copy=True)
    assert gradient_buffers.attach("a", slab.name)
    filled(slab, 1.0, sequence=5)
    slab.begin()
    slab.keep_copy(5)
    assert gradient_buffers.find("a", 5, late=True) is None
    slab.remove()


def test_what_is_written_over_while_it_is_read_is_read_again_from_the_copy(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slab = Slab.create(layout, run_id, shared=True, with_copy=True)
    assert gradient_buffers.attach("a", slab.name)
    filled(slab, 1.0, sequence=5)
    replica, gather = new_shard(layout), Shard.gather

    def disturbed(*given: Any, **how: Any) -> None:
        monkeypatch.setattr(Shard, "gather", gather)
        slab.keep_copy(5)
        filled(slab, 2.0, sequence=6)
        gather(*given, **how)

    monkeypatch.setattr(Shard, "gather", disturbed)
    assert FeedReader(gradient_buffers, replica).gather(named("a"))
    assert first(replica.gathered) == 1.0
    slab.remove()


# --- waiting for pushes ---


def waited(feed_reader: FeedReader, transfer: Transfer, jump: Jump, later: Callable[[], None] | None = None) -> float:
    async def wait() -> float:
        loop = asyncio.get_running_loop()
        if later is not None:
            loop.call_later(0.2, later)
        await feed_reader.wait_for(transfer.contributions)
        return loop.time()

    return float(jump(wait()))


def test_a_push_that_has_not_come_is_waited_for(
    layout: Layout, feed_reader: FeedReader, gradient_buffers: GradientBuffers, jump: Jump
) -> None:
    def push() -> None:
        gradient_buffers.keep("a", 5, pieces(layout, 1.0))
        feed_reader.note_arrival()

    assert waited(feed_reader, named("a"), jump, push) == 0.2


def test_a_push_that_does_not_come_is_waited_for_no_longer_than_said(feed_reader: FeedReader, jump: Jump) -> None:
    assert waited(feed_reader, named("a"), jump) == TIMEOUTS.awaited_push_s


def test_what_can_no_longer_come_is_not_waited_for(
    layout: Layout, feed_reader: FeedReader, gradient_buffers: GradientBuffers, jump: Jump, run_id: str
) -> None:
    """A later gradient of the member has come, or its slab is seen and holds another."""
    gradient_buffers.keep("a", 6, pieces(layout, 1.0))
    slab = Slab.create(layout, run_id, shared=True)
    slab.hold(6)
    gradient_buffers.attach("b", slab.name)
    assert waited(feed_reader, named("a", "b"), jump) == 0.0
    slab.remove()


@pytest.fixture
def make_replica(make_host: Callable[[Replica], CopyHost]) -> Callable[[], CopyHost]:
    """Make the host of a replica of shard 0."""
    return lambda: make_host(Replica(0, "replica-0-0", position=3, version=3))


def test_a_replica_makes_nobody_wait_and_keeps_the_newest(
    layout: Layout, make_replica: Callable[[], CopyHost], jump: Jump
) -> None:
    async def push() -> list[int]:
        replica = make_replica()
        for ahead in range(2 * MOST_KEPT):
            assert await replica.push("w", ahead, sent(layout), 3 + ahead)
        assert await replica.push("w", 99, sent(layout), 2), "what is over is taken, and not kept"
        return [sequence for sequence in range(100) if replica._node.state.gradient_buffers.has("w", sequence)]

    assert jump(push()) == list(range(MOST_KEPT, 2 * MOST_KEPT))


# --- answers ---


def test_each_server_gets_the_answer_to_its_own_transfer(layout: Layout, feed_reader: FeedReader, jump: Jump) -> None:
    """One that was replaced may still wait for one while its successor's is being loaded."""

    async def ask() -> tuple[Any, bool]:
        receiver = Receiver(new_shard(layout), feed_reader)
        state = Transfer("new", 0, 2, 1, STATE, 4, 4, 1.0, ())
        old = receiver.expect(Parcel(named("a", server="old"), 0, (), None, (), {}))
        new = receiver.expect(Parcel(state, 0, (), None, (), {}))
        receiver.answer("new", Replicated(0, "r", 2, 1, 4))
        return decode(await new), old.done()

    assert jump(ask()) == (Replicated(0, "r", 2, 1, 4), False)


def test_what_a_server_sent_is_kept_until_it_is_loaded_although_its_successor_sends_as_well(
    layout: Layout, feed_reader: FeedReader, jump: Jump
) -> None:
    replica = new_shard(layout)

    def parcel(server: str, epoch: int, value: float) -> Parcel:
        state = {name: vector.clone().fill_(value).numpy() for name, vector in replica.state().items()}
        transfer = Transfer(server, 0, epoch, 1, STATE, 4, 4, 1.0, ())
        return Parcel(transfer, 1, tuple(state), None, tuple(state.values()), {})

    async def load() -> list[float]:
        receiver, loaded = Receiver(replica, feed_reader), []
        parcels = parcel("old", 1, 1.0), parcel("new", 2, 2.0)
        for one in parcels:
            receiver.expect(one)
        for one in parcels:
            assert receiver.load(one.transfer, lambda: None)
            loaded.append(first(replica.front))
        return loaded

    assert jump(load()) == [1.0, 2.0]


def test_a_transfer_that_is_repeated_late_does_not_take_the_place_of_the_next(
    layout: Layout, feed_reader: FeedReader, jump: Jump
) -> None:
    """Its call was given up, and it arrives all the same, while the next one is being loaded."""
    replica = new_shard(layout)

    def parcel(number: int, value: float) -> Parcel:
        state = {name: vector.clone().fill_(value).numpy() for name, vector in replica.state().items()}
        transfer = Transfer("s", 0, 1, number, STATE, 3 + number, 3 + number, 1.0, ())
        return Parcel(transfer, 1, tuple(state), None, tuple(state.values()), {})

    async def load() -> float:
        receiver, following = Receiver(replica, feed_reader), parcel(2, 2.0)
        receiver.expect(following)
        receiver.expect(parcel(1, 1.0))
        assert receiver.load(following.transfer, lambda: None)
        return first(replica.front)

    assert jump(load()) == 2.0


def test_a_replica_does_not_keep_a_state_that_it_has_loaded(make_replica: Callable[[], CopyHost], jump: Jump) -> None:
    async def load() -> None:
        held = make_replica()._node.state
        vectors = {name: vector.clone().numpy() for name, vector in held.shard.state().items()}
        transfer = Transfer("s", 0, 1, 1, STATE, 4, 4, 1.0, ())
        held.receiver.expect(Parcel(transfer, 1, tuple(vectors), None, tuple(vectors.values()), {}))
        assert held.load(Load(transfer)).whole
        await asyncio.sleep(0.0)
        assert held.shard.version == 4
        assert held.receiver._kept == {}

    jump(load())


def test_nobody_waits_where_one_gradient_will_not_come(
    layout: Layout, gradient_buffers: GradientBuffers, jump: Jump
) -> None:
    """The other may still be pushed: it alone is no step."""
    gradient_buffers.keep("a", 6, pieces(layout, 1.0))

    async def wait() -> float:
        await FeedReader(gradient_buffers, new_shard(layout)).wait_for(named("a", "b").contributions)
        return asyncio.get_running_loop().time()

    assert jump(wait()) == 0.0


def test_who_may_read_a_copy_waits_for_the_others(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str, jump: Jump
) -> None:
    """One worker of this host has gone on and kept a copy; another one's gradient is still to be pushed."""
    slab = Slab.create(layout, run_id, shared=True, with_copy=True)
    slab.hold(5)
    slab.keep_copy(5)
    slab.hold(6)
    gradient_buffers.attach("a", slab.name)
    feed_reader = FeedReader(gradient_buffers, new_shard(layout))

    async def wait(*, late: bool) -> float:
        await feed_reader.wait_for(named("a", "b").contributions, late=late)
        return asyncio.get_running_loop().time()

    assert jump(wait(late=True)) == TIMEOUTS.awaited_push_s
    assert jump(wait(late=False)) == 0.0
    slab.remove()


# --- what a worker pushes ---


class Places:
    """Stands for a fetcher: replicas `a` and `b` of shard 0, of which some see the worker's slab."""

    def __init__(self, peer: Peer, *seeing: str) -> None:
        self.peers = {"a": peer, "b": peer}
        self._seeing = seeing

    def sees(self, copy: str) -> bool:
        return copy in self._seeing

    async def attach(self, copy: str, shard: int) -> bool:
        return self.sees(copy)


def replica_feed(layout: Layout, network: Any, fetcher: Any, mishaps: list[str]) -> ReplicaFeed:
    slab = Slab.create(layout, "none", shared=False)
    made = ReplicaFeed(network, layout, "w", slab, fetcher, Background(mishaps.append))
    for copy in ("server-0", "a", "b"):
        made.know(copy, 0)
    return made


async def offered(made: ReplicaFeed, *sequences: int, still_there: bool = True) -> None:
    for sequence in sequences:
        made.offer(Exposed(sequence), ["server-0"], lambda: still_there)
    await asyncio.sleep(1.0)


def test_a_gradient_is_pushed_to_the_replicas_that_cannot_see_it(
    layout: Layout, peer: Peer, network: Any, jump: Jump
) -> None:
    taken: list[tuple[str, int]] = []
    mishaps: list[str] = []
    answering = network(lambda method, member, sequence, arrays, counter: taken.append((member, sequence)))
    jump(offered(replica_feed(layout, answering, Places(peer, "b"), mishaps), 5))
    assert taken == [("w", 5)]
    assert mishaps == []


def test_while_a_push_is_under_way_the_next_gradient_is_left_out(
    layout: Layout, peer: Peer, network: Any, jump: Jump
) -> None:
    taken: list[int] = []

    async def slowly(method: str, member: str, sequence: int, *others: Any) -> bool:
        taken.append(sequence)
        await asyncio.sleep(0.5)
        return True

    async def course() -> None:
        made = replica_feed(layout, network(slowly), Places(peer, "b"), [])
        await offered(made, 5, 6)
        await offered(made, 7)

    jump(course())
    assert taken == [5, 7]


def test_what_was_written_over_while_it_was_copied_is_not_pushed(
    layout: Layout, peer: Peer, network: Any, jump: Jump
) -> None:
    taken: list[int] = []
    made = replica_feed(layout, network(lambda *given: taken.append(1)), Places(peer), [])
    jump(offered(made, 5, still_there=False))
    assert taken == []


def test_what_is_pushed_does_not_change_with_the_workers_next_gradient(
    layout: Layout, peer: Peer, network: Any, jump: Jump
) -> None:
    taken: list[Any] = []
    slab = Slab.create(layout, "none", shared=False)
    answering = network(lambda method, member, sequence, arrays, counter: taken.extend(arrays))
    made = ReplicaFeed(answering, layout, "w", slab, Places(peer), Background())  # type: ignore[arg-type]
    made.know("a", 0)
    jump(offered(made, 5))
    for vector in slab.vectors.values():
        vector.fill_(1.0)
    assert taken
    assert not any(array.any() for array in taken)


def test_a_sum_is_pushed_to_replicas_whatever_they_see_and_not_to_servers(
    layout: Layout, peer: Peer, network: Any, jump: Jump
) -> None:
    taken: list[tuple[str, str, bytes, float]] = []

    async def slowly(method: str, member: str, order: bytes, arrays: list[Any]) -> bool:
        taken.append((method, member, order, float(arrays[0][0])))
        await asyncio.sleep(0.5)
        return True

    async def course() -> None:
        answering = network(slowly)
        made, total = replica_feed(layout, answering, Places(peer, "b"), []), allocate(layout)
        for vector in total.values():
            vector.fill_(3)
        pushes = Pushes(answering, layout, "w", total, {}, lambda shard: f"server-{shard}", Background())
        made.offer_sum(Summed(b"one"), pushes)
        await asyncio.sleep(0.25)
        made.offer_sum(Summed(b"two"), pushes)  # while they are being sent the one before
        await asyncio.sleep(1.0)
        made.offer_sum(Summed(b"three"), pushes)
        await asyncio.sleep(1.0)

    jump(course())
    assert taken == [("push_sum", "w", order, 3.0) for order in (b"one", b"one", b"three", b"three")]


def test_a_replica_takes_the_step_of_a_sum_as_its_server_does(
    layout: Layout, gradient_buffers: GradientBuffers
) -> None:
    """Of three gradients, two of which were summed: each is an update, so the step is their sum."""
    bundle = Bundle("c", 1, 1)
    summed = tuple(Contribution(member, slot, 5, None, bundle) for slot, member in enumerate("ab"))
    gradient_buffers.keep_sum(bundle, summed, pieces(layout, 4.0))
    gradient_buffers.keep("d", 5, pieces(layout, 1.0))
    contributions = (*summed, Contribution("d", 3, 5))
    for optimizer in (MOMENTUM, Adam(lr=0.5)):
        server, replica = new_shard(layout, optimizer), new_shard(layout, optimizer)
        for version in (3, 6):
            assert gradient_buffers.gather(server, contributions, careful=False, updates=3)
            server.stage(server.rate_of(0.5, 3))
            server.publish(version)
            transfer = Transfer(
                "s", 0, 1, version, GRADIENTS, 1, version, 0.5, (), contributions=contributions, updates=3
            )
            assert Receiver(replica, FeedReader(gradient_buffers, replica)).load(transfer, lambda: None)
        assert all(torch.equal(one, server.state()[name]) for name, one in replica.state().items())


def test_a_replica_that_is_lost_is_given_up_without_a_word(
    layout: Layout, peer: Peer, network: Any, jump: Jump
) -> None:
    def gone(*_given: Any) -> None:
        raise OSError

    answering, mishaps = network(gone), list[str]()

    async def course() -> None:
        made = replica_feed(layout, answering, Places(peer, "b"), mishaps)
        for sequence in range(1, 9):
            await offered(made, sequence)

    jump(course())
    assert len(answering.calls) == 3
    assert mishaps == []
