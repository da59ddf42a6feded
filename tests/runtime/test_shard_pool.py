"""Which copies a coordinator's process counts among the run's roles: those that live and are known to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.protocol.events import CopyAwake, CopyLost, NoCopy
from psplatform.core.protocol.messages import Applied, Exclude, Promote
from psplatform.core.protocol.place_messages import CoordinatorAt
from psplatform.core.protocol.wire import encode
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.pools.shard_actor import ShardActor
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.timeouts import TIMEOUTS

Jump = Callable[[Any], Any]
Network = Callable[..., Any]


class Host:
    """A coordinator's process whose coordinator takes note of what is lost, and orders nothing."""

    def __init__(self, connect: Any) -> None:
        plan = SimpleNamespace(protection=None)
        self.program = SimpleNamespace(cold=False, server_lease_s=10.0, plan=plan)
        self.peer, self.connect, self.sender, self.term = Peer("tcp://10.0.0.9:1", "lead"), connect, "coordinator-2", 2
        self.unavailable, self.elapsed_s = UnavailableProcesses(), 0.0
        self.fed: list[Any] = []
        self.let_go: list[str] = []
        self.feed, self.released = self.fed.append, self.let_go.append
        self.ended: list[tuple[str, str]] = []
        self.worker_pool = SimpleNamespace(on_process_ended=lambda *one: self.ended.append(one))

    def note(self, record: dict[str, Any]) -> None:
        """Write it down."""

    def on_processes_changed(self) -> None:
        self.fed.append("processes changed")

    def new_background(self) -> Background:
        return Background(self._fail)

    def _fail(self, text: str) -> None:
        raise AssertionError(text)

    def on_refused(self) -> None:
        """Nobody refuses anything."""

    def whereabouts(self) -> CoordinatorAt:
        return CoordinatorAt(2, self.peer.address, self.peer.key)


class Ground:
    """Stands for the fleet: notes which actors are let go of, and takes its time to make one."""

    def __init__(self) -> None:
        self.released: list[Peer] = []
        self.release = self.released.append
        self.numbers = 10

    def next_name(self, role: str) -> str:
        self.numbers += 1
        return f"{role}-{self.numbers}"

    def peer(self, name: str, address: str) -> Peer:
        return Peer(address, name)

    async def create(self, host: type, name: str, address: str, *arguments: Any) -> Peer:
        await asyncio.sleep(1)
        return Peer(address, name)

    async def open(self, peer: Peer) -> str:
        await asyncio.sleep(1)
        return peer.address

    async def meet(self, peer: Peer) -> None:
        """Nothing is learnt."""

    async def death_of(self, address: str) -> None:
        """Nothing is known."""


def peer_of(name: str) -> Peer:
    return Peer(f"tcp://10.0.0.{len(name)}:{len(name)}", name)


def opened(network: Network, known: list[str], counted: list[str]) -> tuple[DaskShardPool, Host, Ground]:
    host, ground = Host(network(lambda method, *_: asyncio.sleep(0 if method == "retire" else 99))), Ground()
    shard_pool = DaskShardPool(cast(Any, host), cast(Any, ground))
    shard_pool.adopt({name: (0, peer_of(name)) for name in known}, {}, dict.fromkeys(counted, 0))
    return shard_pool, host, ground


def test_a_copy_that_is_lost_leaves_at_once_whether_it_is_counted_or_not(network: Network, jump: Jump) -> None:
    """Whatever the coordinator makes of the loss, and however late: nobody is there any more."""

    async def lose() -> tuple[list[str], list[Any], list[str], list[Peer]]:
        shard_pool, host, ground = opened(network, ["server-0", "replica-0-0"], ["server-0", "replica-0-0"])
        shard_pool.lose("replica-0-0", "process ended")
        left = list(shard_pool.directory())
        await asyncio.sleep(2)
        shard_pool.lose("replica-0-0", "closed connection")
        shard_pool.close()
        return left, host.fed, host.let_go, ground.released

    left, fed, let_go, released = jump(lose())
    assert left == ["server-0"]
    assert [(one.copy, one.reason) for one in fed if isinstance(one, CopyLost)] == [("replica-0-0", "process ended")]
    assert let_go == ["replica-0-0"]
    assert released == [peer_of("replica-0-0")]


@pytest.mark.parametrize(("reason", "ended"), [("process ended", True), ("closed connection", False)])
def test_who_else_was_in_a_process_that_ended_is_lost_with_its_copy(
    network: Network, jump: Jump, reason: str, *, ended: bool
) -> None:
    """The cluster misses the process up to half a second later, for which a synchronous run would wait."""

    async def lose() -> list[tuple[str, str]]:
        shard_pool, host, _ = opened(network, ["server-0", "replica-0-0"], ["server-0", "replica-0-0"])
        shard_pool.lose("server-0", reason)
        shard_pool.close()
        return host.ended

    assert jump(lose()) == ([(peer_of("server-0").address, reason)] if ended else [])


def test_the_process_of_a_copy_that_was_let_go_of_can_take_another_once_it_answers(
    network: Network, jump: Jump
) -> None:
    async def retire() -> tuple[set[str], list[Any], set[str]]:
        shard_pool, host, _ = opened(network, ["server-0", "replica-0-0"], ["server-0", "replica-0-0"])
        shard_pool.retire("replica-0-0")
        before = host.unavailable.addresses
        await asyncio.sleep(2)
        shard_pool.close()
        return before, host.fed, host.unavailable.addresses

    before, fed, after = jump(retire())
    assert before == {peer_of("replica-0-0").address}
    assert fed == ["processes changed"]
    assert after == set()


def test_a_copy_that_was_being_made_when_its_coordinator_was_lost_is_let_go_of(network: Network, jump: Jump) -> None:
    """Nobody would open it: it would stay among the roles for ever, and in the way of another in its process."""

    async def adopt() -> tuple[list[str], list[Peer], set[str]]:
        shard_pool, _, ground = opened(network, ["server-0", "replica-0-2.1"], ["server-0"])
        await asyncio.sleep(2)
        shard_pool.close()
        return list(shard_pool.directory()), ground.released, shard_pool.addresses

    left, released, addresses = jump(adopt())
    assert left == ["server-0"]
    assert released == [peer_of("replica-0-2.1")]
    assert addresses == {peer_of("server-0").address}


def test_a_process_in_which_a_copy_cannot_open_is_not_tried_again(network: Network, jump: Jump) -> None:
    """It answers all the same when the copy is let go of, and its memory is as full as before."""
    places = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:2"]

    async def recruit() -> tuple[list[str], set[str], list[Any]]:
        shard_pool, host, ground = opened(network, [], [])
        tried: list[str] = []

        async def first_free(shard: int, but: Collection[str]) -> str | None:
            return next((place for place in places if place not in host.unavailable.addresses), None)

        async def fail(peer: Peer) -> str:
            tried.append(peer.address)
            raise PeerLost("no space left", peer=peer.address)

        ground.open = fail  # type: ignore[method-assign]
        cast(Any, host).on_actor_made = lambda *anything: None
        cast(Any, shard_pool.seating).for_copy = first_free
        shard_pool.recruit(0)
        await asyncio.sleep(60)
        shard_pool.close()
        return tried, host.unavailable.addresses, host.fed

    tried, unavailable, fed = jump(recruit())
    assert tried == places
    assert unavailable == set(places)
    assert [type(one) for one in fed] == [NoCopy]


def test_two_replicas_that_are_missing_at_once_go_to_two_processes(network: Network, jump: Jump) -> None:
    """The place of the first is taken as soon as it is chosen, long before anything is there."""
    places = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:2", "tcp://10.0.0.3:3"]

    async def recruit() -> list[str]:
        shard_pool, _, _ = opened(network, [], [])

        async def first_free(shard: int, but: Collection[str]) -> str | None:
            taken = {one.peer.address for one in shard_pool.posted if one.shard == shard}
            await asyncio.sleep(0.1)
            return next((place for place in places if place not in taken), None)

        cast(Any, shard_pool.seating).for_copy = first_free
        cast(Any, shard_pool)._host.worker_pool = SimpleNamespace(introduce=lambda place: None)
        cast(Any, shard_pool)._host.on_actor_made = lambda *anything: None
        for shard in (0, 0, 1):
            shard_pool.recruit(shard)
        await asyncio.sleep(20)
        shard_pool.close()
        return sorted(f"{one.shard} {one.peer.address}" for one in shard_pool.posted)

    assert jump(recruit()) == [f"0 {places[0]}", f"0 {places[1]}", f"1 {places[0]}"]


def test_where_a_copy_is_being_made_no_gradient_worker_goes(network: Network, jump: Jump) -> None:
    """Both would be placed in the same moment, each in the process that is free of the other."""
    place = "tcp://10.0.0.1:1"

    async def recruit() -> set[str]:
        shard_pool, host, _ = opened(network, [], [])

        async def there(shard: int, but: Collection[str]) -> str:
            return place

        cast(Any, host).on_actor_made = lambda *anything: None
        cast(Any, shard_pool.seating).for_copy = there
        shard_pool.recruit(0)
        await asyncio.sleep(TIMEOUTS.replace_after_s + 0.5)
        kept = set(shard_pool.addresses) if not shard_pool.directory() else set[str]()
        shard_pool.close()
        return kept

    assert jump(recruit()) == {place}


@pytest.mark.parametrize("opens", [True, False])
def test_where_a_process_is_made_of_a_stored_copy_no_gradient_worker_goes(
    network: Network, jump: Jump, *, opens: bool
) -> None:
    """From the moment at which that process is chosen; where nothing comes of it, only until another is chosen."""
    places = ["tcp://10.0.0.1:1", "tcp://10.0.0.2:2"]

    async def awaken() -> tuple[list[set[str]], list[set[str]], list[Any]]:
        shard_pool, host, ground = opened(network, [], [])
        seen: list[set[str]] = []
        untried: list[set[str]] = []

        async def first_free(shard: int, but: Collection[str]) -> str | None:
            untried.append(set(shard_pool.addresses))
            return next((place for place in places if place not in but), None)

        async def fail(peer: Peer) -> str:
            raise PeerLost("no space left", peer=peer.address)

        if not opens:
            ground.open = fail  # type: ignore[method-assign]
        host.program.cold = True
        cast(Any, host).on_actor_made = lambda *anything: None
        cast(Any, shard_pool.seating).for_copy = first_free
        shard_pool.adopt({}, {}, {"replica-0-0": 0})
        shard_pool.send("replica-0-0", Promote(0, 1, 2, 1, 0))
        for pause in (0.5, 1.0, 9.0):
            await asyncio.sleep(pause)
            seen.append(set(shard_pool.addresses))
        shard_pool.close()
        return seen, untried, [type(one) for one in host.fed]

    seen, untried, fed = jump(awaken())
    assert all(not one for one in untried), "a place is kept no longer than it is tried"
    if opens:
        assert (seen, fed) == ([{places[0]}] * 3, [CopyAwake])
    else:
        assert (seen, fed) == ([{places[0]}, {places[1]}, set()], [CopyLost])


def test_what_a_copy_answers_is_heard_and_is_a_sign_of_life(network: Network, jump: Jump) -> None:
    """Told too late how long a lost server was silent, a run would take its end for later than it was."""
    confirmed = Applied(0, 1, 1, 1, ())

    async def answer() -> tuple[list[Any], float]:
        host, watching = Host(network(lambda method, *what: encode((confirmed,)))), Background()
        actor = ShardActor("server-0", 0, Peer("tcp://10.0.0.1:1", "key"))
        actor.begin(cast(Any, host), watching, pytest.fail)
        watching.close()
        await asyncio.sleep(1.0)
        actor.tell(Exclude(2, 1, "replica-0-0"))
        await asyncio.sleep(0.5)
        actor.close()
        return host.fed, actor.silence_s

    fed, silence_s = jump(answer())
    assert fed == [confirmed]
    assert silence_s <= 0.5
