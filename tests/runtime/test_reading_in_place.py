"""Parameters that a replica reads where its server shows them: what it gets is what was captured, in every case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from psplatform.core.protocol.effects import Transmit
from psplatform.core.protocol.messages import STATE, Outdated, Replicated, Transfer
from psplatform.core.protocol.wire import encode
from psplatform.errors import ClusterError
from psplatform.jobs.optimizers import SGD
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import OK, DirectCalls, Peer
from psplatform.runtime.dataplane.gradients.gradient_buffers import GradientBuffers
from psplatform.runtime.dataplane.pulls.content import Content
from psplatform.runtime.dataplane.replicas.feed_reader import FeedReader
from psplatform.runtime.dataplane.replicas.outbox import Inbox, Outbox
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.runtime.dataplane.replicas.receiver import Receiver
from psplatform.runtime.dataplane.replicas.transfers import ProcessCarrier
from psplatform.runtime.dataplane.segments import Segment
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, carve, shard_vectors

Jump = Callable[[Any], Any]
State = dict[str, torch.Tensor]


def step(shard: Shard) -> None:
    """Take a step that changes every parameter, the momentum and the counter."""
    whole = allocate(shard.layout)
    for vector in whole.values():
        vector.fill_(shard.commits + 1)
    shard.gather([shard_vectors(shard.layout, 0, whole)])
    shard.stage(0.5)
    shard.publish(shard.version + 1)


def state_of(shard: Shard) -> State:
    return {name: vector.clone() for name, vector in shard.state().items()}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(vector, other[name]) for name, vector in one.items())


class Reached(DirectCalls):
    """A replica's process, which takes what it is sent when the test says so."""

    def __init__(self, network: Any) -> None:
        self.parcels: list[Parcel] = []
        self.insisted: list[Parcel] = []
        self.done: list[Any] = []
        self.sent = asyncio.Event()
        self.sees_outbox = False
        self._network = network

    def begin(self, actor: str, function: str, arguments: tuple[Any, ...], done: Any) -> Reached:
        self.parcels.append(arguments[0])
        self.done.append(done)
        return self

    def another(self) -> Reached:
        return Reached(self._network)

    def give_up(self) -> None:
        """Nothing is kept."""

    async def actor_execute(self, **call: Any) -> Any:
        return await self._network(self._take)("anywhere").actor_execute(**call)

    def _take(self, method: str, parcel: Parcel) -> bytes | None:
        self.insisted.append(parcel)
        if parcel.in_place is not None or not (self.sees_outbox or parcel.outbox is None):
            return None
        self.sent.set()
        return encode(Replicated(0, "replica", 1, parcel.transfer.number, 1))


@dataclass
class Pair:
    """A server, and a replica that reads in place."""

    server: Shard
    carrier: ProcessCarrier
    replica: Shard
    content: Content
    receiver: Receiver
    process: Reached
    name: str = "replica"
    begun: list[bool] = field(default_factory=list)
    number: int = 0

    def send(self) -> State:
        """Send a transfer of the newest state; return that."""
        self.number += 1
        effect = Transmit(self.name, Transfer("server", 0, 1, self.number, STATE, 1, self.server.version, 0.5, ()))
        self.carrier.capture(effect)
        self.carrier.send(lambda address: self.process, effect, {}, lambda answer: None)
        return state_of(self.server)

    def load(self, parcel: Parcel) -> None:
        assert self.receiver.expect(parcel) is not None
        self.load_what_is_kept(parcel)

    def load_what_is_kept(self, parcel: Parcel) -> None:
        assert self.receiver.load(parcel.transfer, lambda: self.begun.append(True))

    def beside(self, name: str) -> Pair:
        """Make another replica of the server."""
        layout = self.server.layout
        begin = shard_vectors(layout, 0, allocate(layout))
        storage = allocate(layout, 0), allocate(layout, 0)
        replica = Shard(layout, 0, SGD(lr=1.0, momentum=0.9), begin, storage)
        receiver, process = Receiver(replica, FeedReader(GradientBuffers(layout, 0), replica)), self.process.another()
        self.carrier.know(name, Peer(name, "actor"))
        return Pair(self.server, self.carrier, replica, self.content, receiver, process, name)

    def answer(self, message: Any) -> None:
        self.process.done[-1](OK, encode(message))


@pytest.fixture
def pair(layout: Layout, network: Any, run_id: str) -> Iterator[Callable[..., Pair]]:
    made: list[Any] = []

    def make() -> Pair:
        content = Content.create(layout, 0, run_id, 1)
        begin = shard_vectors(layout, 0, allocate(layout))
        first, second = (dict(copy) for copy in content.copies)
        server = Shard(layout, 0, SGD(lr=1.0, momentum=0.9), begin, (first, second))
        carrier = ProcessCarrier(run_id, "server", server, Background(), TRANSPORTS["auto"])
        carrier.read_in_place(content.place_of)
        made.extend((carrier.close, content.remove))
        nobody = Receiver(server, FeedReader(GradientBuffers(layout, 0), server))
        return Pair(server, carrier, server, content, nobody, Reached(network)).beside("replica")

    yield make
    for remove in made:
        remove()


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Note the names of what is copied to an outbox, each time."""
    found: list[set[str]] = []
    copy = Outbox._copy

    def note(outbox: Outbox, vectors: Mapping[str, torch.Tensor]) -> None:
        found.append(set(vectors))
        copy(outbox, vectors)

    monkeypatch.setattr(Outbox, "_copy", note)
    return found


@pytest.mark.parametrize("steps", range(5))
def test_a_replica_gets_the_state_that_was_captured_however_many_steps_are_taken_meanwhile(
    pair: Callable[..., Pair], jump: Jump, steps: int, copied: list[set[str]]
) -> None:
    async def train() -> None:
        one = pair()
        for number in range(4):  # from either copy
            step(one.server)
            expected = one.send()
            for _ in range(steps):
                step(one.server)
            one.load(one.process.parcels[-1])
            assert same(state_of(one.replica), expected)
            assert one.replica.commits == 1 + number * (1 + steps)
            one.answer(Replicated(0, "replica", 1, one.number, 1))

    jump(train())
    parameters = {"parameter.float32", "buffer.int64"}
    assert copied[0] == {"momentum.parameter.float32"}
    assert (parameters in copied) is (steps >= 2), "only what is written over"


def test_what_was_read_is_not_copied_any_more(pair: Callable[..., Pair], jump: Jump, copied: list[set[str]]) -> None:
    async def train() -> None:
        one = pair()
        step(one.server)
        one.send()
        one.load(one.process.parcels[-1])
        one.answer(Replicated(0, "replica", 1, 1, 1))
        for _ in range(4):
            step(one.server)

    jump(train())
    assert copied == [{"momentum.parameter.float32"}]


def test_what_a_replica_may_still_be_loading_is_copied_before_it_is_written_over(
    pair: Callable[..., Pair], jump: Jump
) -> None:
    """One that was promoted answers so at once, and may be loading what this server has sent it before."""

    async def train() -> None:
        one = pair()
        step(one.server)
        expected = one.send()
        one.answer(Outdated(0, 2))
        for _ in range(4):
            step(one.server)
        one.load(one.process.parcels[-1])
        assert same(state_of(one.replica), expected)

    jump(train())


def between(replica: Shard, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> list[bool]:
    """Act once, when everything was read and before it is known to be whole; return whether it was, each time."""
    restore, found = replica.restore, []

    def restore_slowly(vectors: State, *, whole: Callable[[], bool], **place: int) -> bool:
        def act_first() -> bool:
            if not found:
                act()
            found.append(whole())
            return found[-1]

        return restore(vectors, whole=act_first, **place)

    monkeypatch.setattr(replica, "restore", restore_slowly)
    return found


@pytest.mark.parametrize("end", ["closed", "goes on"])
def test_what_is_written_over_while_it_is_read_is_read_again(
    pair: Callable[..., Pair], jump: Jump, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Where it was copied to, also by a server that is closed while a last step is computed."""

    async def train() -> None:
        one = pair()
        step(one.server)
        expected = one.send()
        front = {key: vector.clone() for key, vector in one.replica.front.items()}

        def act() -> None:
            if end == "closed":
                one.carrier.close()
            for _ in range(2):
                step(one.server)
            assert all(torch.equal(vector, front[key]) for key, vector in one.replica.front.items())

        whole = between(one.replica, monkeypatch, act)
        one.load(one.process.parcels[-1])
        assert whole == [False, True]
        assert one.begun == [True]
        assert same(state_of(one.replica), expected)

    jump(train())


def test_for_a_replica_that_is_excluded_nothing_is_copied_and_it_notices(
    pair: Callable[..., Pair], jump: Jump, monkeypatch: pytest.MonkeyPatch, copied: list[set[str]]
) -> None:
    """It is not to be promoted, and might read what is written over."""

    async def train() -> None:
        one = pair()
        step(one.server)
        one.send()
        front = {key: vector.clone() for key, vector in one.replica.front.items()}

        def act() -> None:
            one.carrier.forget("replica")
            for _ in range(2):
                step(one.server)

        between(one.replica, monkeypatch, act)
        with pytest.raises(ClusterError, match="server gave transfer 1 up while it was read"):
            one.load(one.process.parcels[-1])
        assert all(torch.equal(vector, front[key]) for key, vector in one.replica.front.items())

    jump(train())
    assert copied == [{"momentum.parameter.float32"}]


def test_what_another_transfer_has_taken_the_place_of_is_not_loaded(pair: Callable[..., Pair], jump: Jump) -> None:
    async def train() -> None:
        one = pair()
        step(one.server)
        one.send()
        assert one.receiver.expect(one.process.parcels[0]) is not None
        step(one.server)
        one.send()
        with pytest.raises(ClusterError, match="server gave transfer 1 up while it was read"):
            one.load_what_is_kept(one.process.parcels[0])

    jump(train())


def test_a_replica_that_cannot_see_its_server_is_sent_everything_and_then_finds_it_in_the_outbox(
    pair: Callable[..., Pair], jump: Jump, copied: list[set[str]]
) -> None:
    async def train() -> None:
        one = pair()
        step(one.server)
        expected = one.send()
        one.process.done[-1](OK, None)
        step(one.server)
        await one.process.sent.wait()
        for _ in range(3):
            step(one.server)
        parcel = one.process.insisted[-1]
        assert [one.in_place is None for one in one.process.insisted] == [True, True]
        assert (parcel.outbox, parcel.in_place) == (None, None)
        assert same(dict(zip(parcel.keys, map(torch.from_numpy, parcel.arrays), strict=True)), expected)
        one.load(parcel)
        assert same(state_of(one.replica), expected)
        copied.clear()
        one.send()
        assert one.process.parcels[-1].in_place is None
        assert copied == [set(expected)]

    jump(train())


def test_a_replica_that_sees_its_outbox_alone_gets_everything_there(
    pair: Callable[..., Pair], jump: Jump, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def train() -> None:
        one = pair()
        step(one.server)
        expected = one.send()
        parcel = one.process.parcels[-1]
        assert parcel.in_place is not None
        hidden, see = parcel.in_place.segment, Segment.open
        monkeypatch.setattr(Segment, "open", lambda name: None if name == hidden else see(name))
        assert one.receiver.expect(parcel) is None
        one.process.sees_outbox = True
        one.process.done[-1](OK, None)
        await one.process.sent.wait()
        for _ in range(3):
            step(one.server)
        assert one.process.insisted[-1].outbox == parcel.outbox
        one.load(one.process.insisted[-1])
        assert same(state_of(one.replica), expected)

    jump(train())


@pytest.mark.parametrize("gone", ["both", "the outbox", "what the server shows"])
def test_what_a_dead_server_has_sent_is_loaded_though_its_segments_were_removed_meanwhile(
    pair: Callable[..., Pair], jump: Jump, gone: str
) -> None:
    """Its successor may send something before that, which makes the replica forget what does not exist any more."""

    async def train() -> None:
        one = pair()
        step(one.server)
        expected = one.send()
        parcel = one.process.parcels[0]
        assert one.receiver.expect(parcel) is not None
        if gone != "what the server shows":
            one.carrier.close()
        if gone != "the outbox":
            one.content.remove()
        one.receiver._inbox.forget_removed()
        one.load_what_is_kept(parcel)
        assert same(state_of(one.replica), expected)

    jump(train())


def test_two_replicas_read_at_their_own_speed(pair: Callable[..., Pair], jump: Jump) -> None:
    async def train() -> None:
        quick = pair()
        slow = quick.beside("slow")
        step(quick.server)
        expected = quick.send()
        assert same(slow.send(), expected)
        quick.load(quick.process.parcels[-1])
        quick.answer(Replicated(0, "replica", 1, 1, 1))
        step(quick.server)
        newer = quick.send()
        for _ in range(2):
            step(quick.server)
        quick.load(quick.process.parcels[-1])
        slow.load(slow.process.parcels[-1])
        assert same(state_of(slow.replica), expected)
        assert same(state_of(quick.replica), newer)

    jump(train())


def test_content_says_where_its_copies_lie_and_of_nothing_else(layout: Layout, run_id: str) -> None:
    content = Content.create(layout, 0, run_id, 1)
    for number, copy in enumerate(content.copies):
        for vector in copy.values():
            vector.fill_(number + 1)
    inbox = Inbox()
    for copy in content.copies:
        place = content.place_of(copy)
        assert place is not None
        sizes = {key: (str(vector.dtype).removeprefix("torch."), vector.numel()) for key, vector in copy.items()}
        assert same(inbox.vectors(place.segment, sizes, place.at) or {}, dict(copy))
    assert content.place_of(allocate(layout, 0)) is None
    content.remove()


def test_vectors_that_lie_side_by_side_in_one_segment_are_all_found(run_id: str) -> None:
    segment, inbox = Segment.create(run_id, "side", 256), Inbox()
    segment.content[:] = torch.arange(256, dtype=torch.uint8)
    sizes = {"one": ("uint8", 3)}
    for at in (0, 64, 0, 128, 64):
        assert same(inbox.vectors(segment.name, sizes, at) or {}, carve(segment.content[at:], sizes))
    segment.remove()
