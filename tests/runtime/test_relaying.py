"""Workers that get the parameters through another worker's process: real hosts of workers, without Dask around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from distributed.protocol.serialize import Serialize

from psplatform.core.protocol.effects import Compute
from psplatform.core.protocol.events import ComputeAborted
from psplatform.core.protocol.messages import Abort, Moved, Pull, Pulled, Release, Welcome
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.supervision.decisions import WORKER
from psplatform.core.traits import Traits
from psplatform.jobs.compression import Compression
from psplatform.jobs.network import Fabric
from psplatform.runtime.actors.worker.exchange import Workbench
from psplatform.runtime.actors.worker.host import WorkerHost
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.pulls.content import Answer, Content
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.dataplane.pulls.relaying import ProcessRelaying, _Held
from psplatform.runtime.dataplane.transports import COMMS, SharedMemory, Transport
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout

Jump = Callable[[Any], Any]
PATIENCE_S = 2.0
LONG_S = 100 * TIMEOUTS.not_yet_s
RELAY = "w1"


class Server:
    """A shard's server, each number of whose content is its version; `pulls` are the names of those who asked."""

    def __init__(self, layout: Layout, shard: int, epoch: int = 0, content: Content | None = None) -> None:
        self._shard, self._epoch, self._content = shard, epoch, content
        self._like = [vector.numpy() for vector in Parameters(layout).piece(shard).values()]
        self._version = 0
        self._shown = asyncio.Event()
        self.pulls: list[str] = []

    def show(self, version: int) -> None:
        if self._content is not None:
            self._content.begin_writing(0)
            for vector in self._content.copies[0].values():
                vector.fill_(version)
            self._content.show(0, version)
        self._version = version
        self._shown.set()
        self._shown = asyncio.Event()

    async def attach(self, member: str, slab: Any) -> Any:
        return False, self._content.name if self._content is not None else None

    async def pull(self, data: bytes, with_content: bool) -> Answer:
        pull: Pull = decode(data)
        self.pulls.append(pull.member)
        try:
            async with asyncio.timeout(TIMEOUTS.not_yet_s):
                while self._version < pull.version:
                    await self._shown.wait()
        except TimeoutError:
            return Answer(None)
        pulled = encode(Pulled(self._shard, pull.request, self._version, self._epoch))
        arrays = tuple(np.full_like(one, self._version) for one in self._like) if with_content else ()
        return Answer(pulled, arrays=arrays)


class Worker:
    """The host of a worker that has joined; `computed_on` are the versions that were in its parameters each time."""

    def __init__(self, name: str, run: str, layout: Layout, connect: Any, transport: Transport) -> None:
        servers = {f"server-{shard}": (shard, Peer(f"server-{shard}", "")) for shard in range(layout.shards)}
        self.host = WorkerHost(run, name, Peer("coordinator", ""), servers)
        self.computed_on: list[set[float]] = []
        self.mishaps: list[str] = []
        self._sequence = 0
        program = SimpleNamespace(
            policy=SimpleNamespace(traits=Traits(exact=True)),
            plan=SimpleNamespace(from_workers=False),
            fabric=Fabric(aggregators=1),
            compression=Compression(),
            seed=0,
            slow_s=0.0,
        )
        self.parameters = Parameters(layout)
        computing: Any = SimpleNamespace(start=self._compute, cancel=self._abort, close=lambda: None)
        slab = Slab.create(layout, run, shared=False)
        made = {
            "program": program,
            "connect": connect,
            "bench": Workbench(layout, transport, slab, self.parameters, computing, per_block=False),
            "loop": asyncio.get_running_loop(),
            "worker": SimpleNamespace(plugins={}, status=None),
            "on_mishap": self.mishaps.append,
        }
        vars(self.host).update({f"_{key}": value for key, value in made.items()})
        self.host._make_node("tcp://10.0.0.1:1 pid 1")
        self.host._coordinator.open(cast(Any, SimpleNamespace(send=lambda message: None, close=lambda: None)))
        self.tell(Welcome(1, 0, 0))

    def _compute(self, effect: Compute) -> None:
        vectors = self.parameters.vectors.values()
        self.computed_on.append({float(number) for vector in vectors for number in vector.flatten()})

    def _abort(self, sequence: int) -> None:
        self.host._feed_from_thread(ComputeAborted(sequence))

    @property
    def relaying(self) -> ProcessRelaying:
        assert self.host._exchange is not None
        assert self.host._exchange.relaying is not None
        return self.host._exchange.relaying

    @property
    def held(self) -> dict[int, Any]:
        return self.relaying._held.arrays

    def tell(self, *messages: Any) -> None:
        self.host.take("coordinator", encode(list(messages)))

    def release(self, version: int, patience_s: float = LONG_S) -> None:
        """Let it compute on a version, which it is to get through the relay."""
        if self._sequence:
            self.tell(Abort(1, self._sequence))  # what becomes of its gradients is of no interest here
        self._sequence += 1
        self.tell(Release(1, self._sequence, version, None, RELAY, patience_s))


class Cluster:
    """Servers of two shards and three workers, the first of them a relay; an actor's name is its address."""

    def __init__(self, layout: Layout, run: str, transport: Transport = COMMS, *, shared: bool = False) -> None:
        self.gone: set[str] = set()
        self.silent: set[str] = set()
        self.unanswered = 0
        self.calls: list[tuple[str, str]] = []
        contents = [Content.create(layout, shard, run, 0) if shared else None for shard in range(layout.shards)]
        self.servers = [Server(layout, shard, content=content) for shard, content in enumerate(contents)]
        self.actors: dict[str, Any] = {f"server-{shard}": one for shard, one in enumerate(self.servers)}
        parts = run, layout, self._connect, transport
        self.workers = [Worker(name, *parts) for name in (RELAY, "w2", "w3")]
        self.relay, *self.others = self.workers
        self.actors |= {one.host._member: one.host for one in self.workers}
        for one in self.others:
            one.tell(ActorAt(RELAY, RELAY, "", part=WORKER))

    def show(self, version: int) -> None:
        for one in self.servers:
            one.show(version)

    def release(self, version: int, patience_s: float = LONG_S) -> None:
        for one in self.workers:
            one.release(version, patience_s)

    @property
    def pulls(self) -> list[list[str]]:
        """Who has asked each server."""
        return [one.pulls for one in self.servers]

    @property
    def computed_on(self) -> list[list[set[float]]]:
        return [one.computed_on for one in self.workers]

    @property
    def mishaps(self) -> list[str]:
        return [text for one in self.workers for text in one.mishaps]

    def calls_of(self, method: str) -> list[str]:
        return [actor for actor, function in self.calls if function == method]

    def _connect(self, address: str) -> Any:
        async def execute(*, actor: str, function: str, args: list[Any], kwargs: Any) -> Any:
            self.calls.append((address, function))
            if address in self.gone:
                raise ConnectionRefusedError
            if address in self.silent:
                self.unanswered += 1
                try:
                    await asyncio.sleep(LONG_S)
                finally:
                    self.unanswered -= 1
            given = [one.data if isinstance(one, Serialize) else one for one in args]
            try:
                return {"status": "OK", "result": await getattr(self.actors[address], function)(*given)}
            except Exception as error:  # noqa: BLE001  what a remote method raises comes back as a value
                return {"status": "error", "exception": error}

        return SimpleNamespace(actor_execute=execute)


@pytest.fixture
def cluster(layout: Layout, run_id: str) -> Callable[..., Cluster]:
    """Make a cluster on the running loop."""
    return lambda *how, **more: Cluster(layout, run_id, *how, **more)


Make = Callable[..., Cluster]


def test_the_servers_send_once_what_all_workers_get_through_a_relay(cluster: Make, jump: Jump) -> None:
    """The relay's own worker is one of them, and needs no call."""

    async def pull() -> None:
        one = cluster()
        one.show(7)
        one.release(7)
        await asyncio.sleep(1.0)
        assert one.computed_on == [[{7.0}]] * 3
        assert one.pulls == [["w1/relay"]] * 2
        assert one.calls_of("relay_pull") == ["w1"] * 4
        assert one.relay.relaying.handed_on == 6
        assert [other.held for other in one.others] == [{}, {}]
        assert one.mishaps == []

    jump(pull())


def test_who_waits_for_a_version_through_a_relay_asks_again_until_it_is_shown(cluster: Make, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        one.release(7)
        await asyncio.sleep(2.5 * TIMEOUTS.not_yet_s)
        assert one.computed_on == [[]] * 3
        assert one.pulls == [["w1/relay"] * 3] * 2
        assert one.calls_of("relay_pull") == ["w1"] * 12
        one.show(8)
        await asyncio.sleep(1.0)
        assert one.computed_on == [[{8.0}]] * 3
        assert one.relay.relaying.handed_on == 6

    jump(pull())


def test_what_is_held_is_as_new_as_what_was_pulled_last_and_what_is_sent_does_not_change(
    cluster: Make, layout: Layout, jump: Jump
) -> None:
    async def pull() -> None:
        one = cluster()
        one.show(7)
        one.others[0].release(7)
        await asyncio.sleep(1.0)
        before = dict(one.relay.held)
        one.show(8)
        one.others[1].release(8)
        await asyncio.sleep(1.0)
        assert [one.others[0].computed_on, one.others[1].computed_on] == [[{7.0}], [{8.0}]]
        assert sorted(one.relay.held) == list(range(layout.shards))
        assert {float(number) for arrays in before.values() for each in arrays for number in each.flat} == {7.0}
        assert {float(number) for held in one.relay.held.values() for each in held for number in each.flat} == {8.0}

    jump(pull())


def test_what_a_server_shows_on_the_host_of_the_relay_is_read_there(cluster: Make, jump: Jump) -> None:
    """And copied: the server writes over it while it is being sent."""

    async def pull() -> None:
        one = cluster(SharedMemory(), shared=True)
        one.show(7)
        one.release(7)
        await asyncio.sleep(1.0)
        one.show(8)
        assert one.computed_on == [[{7.0}]] * 3
        assert {float(number) for held in one.relay.held.values() for each in held for number in each.flat} == {7.0}

    jump(pull())


def test_shards_that_are_behind_are_asked_for_again_through_the_relay(cluster: Make, jump: Jump) -> None:
    """All of what a synchronous worker computes on is of one version."""

    async def pull() -> None:
        one = cluster()
        one.servers[0].show(8)
        one.servers[1].show(7)
        one.release(7)
        await asyncio.sleep(1.0)
        assert one.computed_on == [[]] * 3
        one.servers[1].show(8)
        await asyncio.sleep(1.0)
        assert one.computed_on == [[{8.0}]] * 3
        assert one.pulls == [["w1/relay"], ["w1/relay"] * 2]

    jump(pull())


def loses(one: Cluster) -> None:
    one.gone.add(RELAY)


def stops(one: Cluster) -> None:
    one.silent.add(RELAY)


def breaks(one: Cluster) -> None:
    def fail(data: bytes) -> None:
        raise ValueError("a fault of its own")

    one.actors[RELAY] = SimpleNamespace(relay_pull=fail)


def is_unknown(one: Cluster) -> None:
    for other in one.others:
        other.host._workers.clear()


def was_never_one(one: Cluster) -> None:
    assert one.relay.host._exchange is not None
    one.relay.host._exchange.relaying = None


def leaves(one: Cluster) -> None:
    one.relay.host._depart("closed")


@pytest.mark.parametrize("happens", [loses, stops, breaks, is_unknown, was_never_one, leaves])
def test_the_servers_are_asked_when_a_relay_has_not_answered_in_time(
    cluster: Make, jump: Jump, happens: Callable[[Cluster], None]
) -> None:
    async def pull() -> None:
        one = cluster()
        happens(one)
        one.show(7)
        for other in one.others:
            other.release(7, PATIENCE_S)
        await asyncio.sleep(PATIENCE_S - 0.1)
        assert [other.computed_on for other in one.others] == [[], []]
        await asyncio.sleep(0.2)
        assert [other.computed_on for other in one.others] == [[{7.0}], [{7.0}]]
        assert [sorted(names) for names in one.pulls] == [["w2", "w3"]] * 2
        asked = one.calls_of("relay_pull")
        await asyncio.sleep(LONG_S)
        assert one.calls_of("relay_pull") == asked, "it is not asked any more"
        assert one.mishaps == []

    jump(pull())


def test_the_next_pull_through_a_relay_gives_the_one_before_up(cluster: Make, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        one.show(8)
        stops(one)
        one.others[0].release(7)
        await asyncio.sleep(1.0)
        assert one.unanswered == 2
        one.silent.clear()
        one.others[0].release(8)
        await asyncio.sleep(1.0)
        assert one.unanswered == 0
        assert one.others[0].computed_on == [{8.0}]

    jump(pull())


def test_a_relay_that_is_made_known_late_is_asked_then(cluster: Make, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        one.show(7)
        is_unknown(one)
        one.others[0].release(7)
        await asyncio.sleep(1.0)
        one.others[0].tell(ActorAt(RELAY, RELAY, "", part=WORKER))
        await asyncio.sleep(1.0)
        assert one.others[0].computed_on == [{7.0}]

    jump(pull())


def test_who_does_not_wait_any_more_does_not_ask_a_lost_relay_for_ever(cluster: Make, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        loses(one)
        one.others[0].release(7)
        await asyncio.sleep(1.0)
        one.others[0].tell(Abort(1, 1))
        await asyncio.sleep(1.0)
        asked = len(one.calls_of("relay_pull"))
        await asyncio.sleep(LONG_S)
        assert len(one.calls_of("relay_pull")) == asked > 2

    jump(pull())


def test_a_relay_that_leaves_lets_go_of_all_who_wait_and_of_what_it_holds(cluster: Make, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        one.show(7)
        one.release(7)
        await asyncio.sleep(1.0)
        waits = asyncio.create_task(one.relay.host.relay_pull(encode(Pull("w9", 0, 1, 9))))
        await asyncio.sleep(1.0)
        leaves(one)
        assert (await waits).pulled is None
        assert asyncio.get_running_loop().time() == 2.0, "at once"
        with pytest.raises(PeerLost, match="w1 hands nothing on now"):
            await one.relay.host.relay_pull(encode(Pull("w9", 0, 1, 9)))
        assert one.relay.held == {}
        asked = one.pulls[0].copy()
        await asyncio.sleep(LONG_S)
        assert one.pulls[0] == asked

    jump(pull())


def test_a_relay_turns_to_a_new_server_as_those_do_who_wait_for_it(cluster: Make, layout: Layout, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        one.servers[0].show(7)
        one.release(7)
        await asyncio.sleep(1.0)
        one.gone.add("server-1")
        new = one.actors["replica-1-0"] = Server(layout, 1, epoch=1)
        new.show(7)
        for each in one.workers:
            each.tell(ActorAt("replica-1-0", "replica-1-0", "", 1), Moved(1, 1, 1, "replica-1-0"))
        await asyncio.sleep(1.0)
        assert one.computed_on == [[{7.0}]] * 3
        assert sorted(new.pulls) == ["w1", "w2", "w3"], "they asked it themselves"
        await asyncio.sleep(LONG_S)
        asked = len(one.servers[1].pulls)
        late = Worker("w4", one.relay.host._run, layout, one._connect, COMMS)
        late.tell(ActorAt(RELAY, RELAY, "", part=WORKER), Moved(1, 1, 1, "replica-1-0"))
        await asyncio.sleep(1.0)
        late.release(7)
        await asyncio.sleep(1.0)
        assert late.computed_on == [{7.0}]
        assert new.pulls[3:] == ["w1/relay"]
        assert len(one.servers[1].pulls) == asked, "and the one that is gone is asked no more"
        assert one.mishaps == []

    jump(pull())


def test_what_a_server_that_was_replaced_sends_late_is_not_kept(cluster: Make, jump: Jump) -> None:
    async def pull() -> None:
        one = cluster()
        one.show(7)
        one.release(7)
        await asyncio.sleep(1.0)
        kept = dict(one.relay.held)
        one.others[0].release(8)
        await asyncio.sleep(1.0)
        one.relay.tell(Moved(1, 1, 1, "replica-1-0"))
        await asyncio.sleep(1.0)
        one.servers[1].show(8)
        await asyncio.sleep(1.0)
        assert one.relay.held[1] is kept[1]
        one.servers[0].show(8)
        await asyncio.sleep(1.0)
        assert one.relay.held[0] is not kept[0]

    jump(pull())


@pytest.mark.parametrize("held", [[False], [True, False]])
def test_content_that_is_written_over_is_not_kept(layout: Layout, held: list[bool]) -> None:
    """Before it is copied, or while it is."""
    kept, looks = _Held(), iter(held)
    copies = (Parameters(layout).piece(0),) * 2
    content: Any = SimpleNamespace(copies=copies, holds=lambda copy, version, epoch: next(looks))
    assert not kept.take(Pulled(0, 1, 7, 0), content, Answer(b""))
    assert kept.arrays == {}


def test_a_worker_of_a_run_without_aggregators_has_no_relay(layout: Layout, run_id: str, jump: Jump) -> None:
    async def make() -> None:
        host = WorkerHost(run_id, "w1", Peer("coordinator", ""), {})
        with pytest.raises(PeerLost, match="w1 hands nothing on"):
            await host.relay_pull(encode(Pull("w2", 0, 1, 7)))

    jump(make())
