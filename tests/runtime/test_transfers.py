"""Transfers from a server to its replica: the same arrives whether memory is shared, cannot be seen, or is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from psplatform.core.protocol.effects import Transmit
from psplatform.core.protocol.messages import STATE, UPDATE, Outdated, Replicated, Transfer
from psplatform.core.protocol.wire import decode, encode
from psplatform.jobs.optimizers import SGD
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import OK, DirectCalls, Peer
from psplatform.runtime.dataplane.gradients.gradient_buffers import GradientBuffers
from psplatform.runtime.dataplane.replicas import transfers
from psplatform.runtime.dataplane.replicas.feed_reader import FeedReader
from psplatform.runtime.dataplane.replicas.outbox import Inbox, Outbox
from psplatform.runtime.dataplane.replicas.parcel import Parcel
from psplatform.runtime.dataplane.replicas.receiver import Receiver
from psplatform.runtime.dataplane.replicas.transfers import ProcessCarrier
from psplatform.runtime.dataplane.transports import TRANSPORTS
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, shard_vectors

Jump = Callable[[Any], Any]
ACKNOWLEDGED = Replicated(0, "replica", 1, 1, 1)


def new_shard(layout: Layout) -> Shard:
    start = shard_vectors(layout, 0, allocate(layout))
    return Shard(layout, 0, SGD(lr=1.0, momentum=0.9), start, (allocate(layout, 0), allocate(layout, 0)))


def stage(shard: Shard, gradient: float, room: Mapping[str, torch.Tensor] | None = None) -> None:
    whole = allocate(shard.layout)
    for vector in whole.values():
        vector.fill_(gradient)
    shard.gather([shard_vectors(shard.layout, 0, whole)], into=room)
    shard.stage(0.5)


def step(shard: Shard, gradient: float, room: Mapping[str, torch.Tensor] | None = None) -> None:
    stage(shard, gradient, room)
    shard.publish(shard.version + 1)


@pytest.fixture
def begin(run_id: str) -> Iterator[Callable[..., ProcessCarrier]]:
    """Make a server's side; what it shares is removed after the test."""
    made = []

    def make(server: Shard, *, transport: str, each: bool = False) -> ProcessCarrier:
        made.append(ProcessCarrier(run_id, "server", server, Background(), TRANSPORTS[transport], each=each))
        return made[-1]

    yield make
    for one in made:
        one.close()


def taking(receiver: Receiver, memory: str) -> Callable[..., bytes | None]:
    def take(method: str, parcel: Parcel) -> bytes | None:
        elsewhere = memory == "of another host" and parcel.outbox is not None
        if elsewhere or receiver.expect(parcel) is None:
            return None
        assert receiver.load(parcel.transfer, lambda: None)
        receiver.drop(replace(parcel.transfer, number=0))
        assert receiver._kept, "another transfer, which may come again"
        receiver.drop(parcel.transfer)
        return encode(ACKNOWLEDGED)

    return take


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("kind", [STATE, UPDATE])
@pytest.mark.parametrize("memory", ["shared", "of another host", "private"])
def test_a_replica_gets_what_its_server_had_when_it_was_captured(  # noqa: PLR0917  fixtures and parameters
    layout: Layout,
    peer: Peer,
    network: Any,
    jump: Jump,
    begin: Callable[..., ProcessCarrier],
    memory: str,
    kind: str,
    merged: bool,
) -> None:
    server, replica = new_shard(layout), new_shard(layout)
    receiver = Receiver(replica, FeedReader(GradientBuffers(layout, 0), replica))
    answers: list[Any] = []

    async def send() -> dict[str, Any]:
        carrier = begin(server, transport="comms" if memory == "private" else "auto", each=merged)
        carrier.know("replica", peer)
        if kind == STATE:
            step(server, 3.0)
        effect = Transmit("replica", Transfer("server", 0, 1, 1, kind, 1, 1, 0.5, ()))
        if merged:
            carrier.prepare("replica")
        stage(server, 1.0, carrier.room())
        carrier.capture(effect)
        server.publish(server.version + 1)
        captured = {name: vector.clone() for name, vector in server.state().items()}
        step(server, 5.0, carrier.room())
        carrier.send(network(taking(receiver, memory)), effect, {}, answers.append)
        await asyncio.sleep(1.0)
        return captured

    expected = jump(send())
    assert answers == [ACKNOWLEDGED]
    assert all(torch.equal(vector, expected[name]) for name, vector in replica.state().items())
    assert replica.commits == (1 if kind == UPDATE else 2)
    assert receiver._kept == {}, "a whole state is not kept beside the replica's own"


def test_a_replica_that_is_forgotten_is_sent_nothing_more(
    layout: Layout,
    peer: Peer,
    network: Any,
    jump: Jump,
    begin: Callable[..., ProcessCarrier],
    run_id: str,
    files_of: Callable[[str], list[Path]],
) -> None:
    """Names are never used again: what one took would be lost, and its process be called, for the rest of the run."""

    def refuse(*_: Any) -> None:
        raise OSError

    async def send() -> tuple[int, int]:
        network_of = network(refuse)
        carrier = begin(new_shard(layout), transport="auto")
        carrier.know("replica", peer)
        effect = Transmit("replica", Transfer("server", 0, 1, 1, STATE, 1, 1, 0.5, ()))
        carrier.capture(effect)
        carrier.send(network_of, effect, {}, lambda answer: None)
        await asyncio.sleep(1.0)
        assert len(files_of(run_id)) == 1
        before = len(network_of.calls)
        carrier.forget("replica")
        await asyncio.sleep(60.0)
        return before, len(network_of.calls)

    before, after = jump(send())
    assert before == after > 1
    assert files_of(run_id) == []


def test_a_server_gets_the_answer_to_its_own_transfers_and_no_other(layout: Layout, jump: Callable[[Any], Any]) -> None:
    """One that was replaced would take its successor's for its own, and hold its replica for further on than it is."""
    replica = new_shard(layout)
    receiver = Receiver(replica, FeedReader(GradientBuffers(layout, 0), replica))

    async def ask() -> tuple[list[bool], Any]:
        parcels = [Parcel(Transfer(of, 0, 1, 1, STATE, 1, 1, 1.0, ()), 1, (), None, (), {}) for of in ("old", "new")]
        old, new = (receiver.expect(one) for one in parcels)
        receiver.answer("new", Replicated(0, "r", 2, 1, 1))
        return [old.done(), new.done()], decode(new.result())

    assert jump(ask()) == ([False, True], Replicated(0, "r", 2, 1, 1))


class AtOnce(DirectCalls):
    """A replica that is reached at once, and otherwise too."""

    def __init__(self, network: Any) -> None:
        self.done: list[Any] = []
        self.given_up = 0
        self.otherwise: list[Parcel] = []
        self._network = network

    def begin(self, actor: str, function: str, arguments: tuple[Any, ...], done: Any) -> AtOnce:
        assert function == "transfer"
        self.done.append(done)
        return self

    def give_up(self) -> None:
        self.given_up += 1

    async def actor_execute(self, **call: Any) -> Any:
        return await self._network(self._take)("anywhere").actor_execute(**call)

    def _take(self, method: str, parcel: Parcel) -> bytes:
        self.otherwise.append(parcel)
        return encode(ACKNOWLEDGED)


class Sending:
    """A server's side in front of such a replica."""

    def __init__(self, carrier: ProcessCarrier, peer: Peer, network: Any) -> None:
        self.carrier, self.replica = carrier, AtOnce(network)
        self.answers: list[Any] = []
        carrier.know("replica", peer)

    def send(self, number: int) -> None:
        effect = Transmit("replica", Transfer("server", 0, 1, number, STATE, 1, 1, 0.5, ()))
        self.carrier.capture(effect)
        self.carrier.send(lambda address: self.replica, effect, {}, self.answers.append)


@pytest.fixture
def sending(layout: Layout, peer: Peer, network: Any, begin: Callable[..., ProcessCarrier], jump: Jump) -> Any:
    def make() -> Sending:
        return Sending(begin(new_shard(layout), transport="auto"), peer, network)

    return make


def test_a_transfer_that_is_sent_at_once_is_answered_once(sending: Any, jump: Jump) -> None:
    async def send() -> Sending:
        one: Sending = sending()
        one.send(1)
        one.replica.done[0](OK, encode(ACKNOWLEDGED))
        await asyncio.sleep(TIMEOUTS.transfer_s + 1)
        return one

    one = jump(send())
    assert one.answers == [ACKNOWLEDGED]
    assert one.replica.otherwise == []


@pytest.mark.parametrize("answer", [(OK, None), ("error", None), ("lost", None)])
def test_one_that_is_not_taken_at_once_is_insisted_on(sending: Any, jump: Jump, answer: tuple[str, Any]) -> None:
    """Whole, where the replica cannot see where it lies."""

    async def send() -> Sending:
        one: Sending = sending()
        one.send(1)
        one.replica.done[0](*answer)
        await asyncio.sleep(1)
        return one

    one = jump(send())
    assert one.answers == [ACKNOWLEDGED]
    assert len(one.replica.otherwise) == 1


def test_the_next_transfer_takes_the_place_of_one_that_is_not_answered(sending: Any, jump: Jump) -> None:
    async def send() -> Sending:
        one: Sending = sending()
        one.send(1)
        one.send(2)
        assert one.replica.given_up == 1
        one.replica.done[1](OK, encode(ACKNOWLEDGED))
        await asyncio.sleep(TIMEOUTS.transfer_s + 1)
        return one

    one = jump(send())
    assert one.answers == [ACKNOWLEDGED]
    assert one.replica.otherwise == []


def test_a_server_that_is_closed_insists_on_nothing(sending: Any, jump: Jump) -> None:
    async def send() -> Sending:
        one: Sending = sending()
        one.send(1)
        one.carrier.close()
        await asyncio.sleep(TIMEOUTS.transfer_s + 1)
        return one

    assert jump(send()).replica.otherwise == []


class Merging:
    """A server's side whose updates are merged where its replicas read them."""

    def __init__(self, carrier: ProcessCarrier, server: Shard, peers: Mapping[str, Any], network: Any) -> None:
        self.carrier, self.server = carrier, server
        self.replicas = {name: AtOnce(network) for name in peers}
        self.number = 0
        for name in peers:
            carrier.know(name, Peer(name, "actor"))
            carrier.prepare(name)

    def commit(self, *replicas: str, kind: str = UPDATE) -> Mapping[str, torch.Tensor]:
        """Merge, step and send to those replicas; return where the update was merged into."""
        self.number += 1
        room = self.carrier.room()
        assert room is not None
        stage(self.server, self.number, room)
        for name in replicas:
            effect = Transmit(name, Transfer("server", 0, 1, self.number, kind, 1, 1, 0.5, ()))
            self.carrier.capture(effect)
            self.carrier.send(lambda address: self.replicas[address], effect, {}, lambda answer: None)
        self.server.publish(self.server.version + 1)
        return room

    def answer(self, name: str, message: Any = ACKNOWLEDGED) -> None:
        self.replicas[name].done[-1](OK, encode(message))


def values(room: Mapping[str, torch.Tensor]) -> set[float]:
    return {float(one) for vector in room.values() for one in vector}


@pytest.fixture
def merging(layout: Layout, network: Any, begin: Callable[..., ProcessCarrier]) -> Callable[..., Merging]:
    def make(*replicas: str) -> Merging:
        server = new_shard(layout)
        return Merging(begin(server, transport="auto", each=True), server, dict.fromkeys(replicas), network)

    return make


def test_what_a_replica_may_still_read_is_not_written_over(
    merging: Callable[..., Merging], jump: Jump, run_id: str, files_of: Callable[[str], list[Path]]
) -> None:
    async def train() -> None:
        one = merging("a", "b")
        first = one.commit("a", "b")
        one.answer("a")
        second = one.commit("a")
        assert second is not first, "b reads it"
        third = one.commit()
        assert values(first) == {1.0}
        assert values(second) == {2.0}
        assert values(third) == {3.0}
        one.answer("b")
        one.answer("a")
        for _ in range(5):
            one.commit("a", "b")
            one.answer("a")
            one.answer("b")
        assert len(files_of(run_id)) == 3, "no more than at the beginning"

    jump(train())


@pytest.mark.parametrize("end", ["forgotten", "superseded", "refused"])
def test_what_an_excluded_replica_reads_is_never_used_again(
    merging: Callable[..., Merging], jump: Jump, end: str
) -> None:
    async def train() -> None:
        one = merging("a")
        first = one.commit("a")
        if end == "forgotten":
            one.carrier.forget("a")
            one.carrier.prepare("a")
        elif end == "refused":
            one.answer("a", Outdated(0, 2))
        else:
            one.commit("a")
        rooms = [one.commit() for _ in range(4)]
        assert all(room is not first for room in rooms)
        assert values(first) == {1.0}

    jump(train())


def test_the_room_for_whole_states_is_given_up_when_it_is_not_needed(
    merging: Callable[..., Merging],
    jump: Jump,
    run_id: str,
    files_of: Callable[[str], list[Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfers, "_KEPT_FOR", 3)

    async def train() -> list[int]:
        one = merging("a")
        files = []
        for kind in (UPDATE, STATE, *[UPDATE] * 3, STATE, *[UPDATE] * 4):
            one.commit("a", kind=kind)
            one.answer("a")
            files.append(len(files_of(run_id)))
        return files

    assert jump(train()) == [2, 3, 3, 3, 3, 3, 3, 3, 3, 2]


def test_a_segment_holds_an_update_now_and_a_whole_state_then(layout: Layout, run_id: str) -> None:
    shard, inbox = new_shard(layout), Inbox()
    outbox = Outbox(run_id, "a", shard.state_sizes(), shared=True)
    assert outbox.name is not None
    for number, sizes in enumerate((shard.state_sizes(), shard.front_sizes(), shard.front_sizes())):
        for key in sizes:
            outbox.vectors[key].fill_(number)
        found = inbox.vectors(outbox.name, sizes)
        assert found is not None
        assert found.keys() == sizes.keys()
        assert all(torch.equal(vector, outbox.vectors[key]) for key, vector in found.items())
    outbox.remove()


def test_a_replica_unmaps_what_its_server_has_removed(layout: Layout, run_id: str) -> None:
    shard = new_shard(layout)
    inbox = Inbox()
    outboxes = [Outbox(run_id, role, shard.front_sizes(), shared=True) for role in ("a", "b")]
    for one in outboxes:
        assert one.name is not None
        assert inbox.vectors(one.name, shard.front_sizes()) is not None
    outboxes[0].remove()
    inbox.forget_removed()
    assert list(inbox._opened) == [outboxes[1].name]
    outboxes[1].remove()


def test_where_whole_states_are_sent_nothing_is_merged_for_replicas(
    layout: Layout, begin: Callable[..., ProcessCarrier]
) -> None:
    """But after an update the next one is expected."""
    server = new_shard(layout)
    carrier = begin(server, transport="auto")
    carrier.prepare("a")
    offered = []
    for number, kind in enumerate((STATE, UPDATE, UPDATE, "", UPDATE, STATE, STATE)):
        room = carrier.room()
        offered.append(room is not None)
        stage(server, 1.0, room)
        if kind:
            carrier.capture(Transmit("a", Transfer("server", 0, 1, number, kind, 1, 1, 0.5, ())))
            carrier._rooms.has_read("a")
        server.publish(number + 1)
    assert offered == [False, False, True, True, False, True, False]
