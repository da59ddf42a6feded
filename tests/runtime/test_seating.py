"""Where roles are is looked at: what the run survives is logged, and one role at a time moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.plan import Protection
from psplatform.core.protocol.events import CopyMisplaced
from psplatform.core.supervision.placement import Process
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.pools.seating import Seating
from psplatform.runtime.pools.warming import Warmth

Jump = Callable[[Any], Any]


def at(name: str) -> Process:
    return Process(f"tcp://{name[0]}:{name[1]}", name[0], {})


class Standbys:
    """Stands for the standbys' side, with one standby or none."""

    def __init__(self, address: str) -> None:
        self.address, self.dismissed = address, list[str]()

    @property
    def following(self) -> tuple[str, ...]:
        return (self.address,) if self.address else ()

    def lose_process(self, address: str, reason: str) -> None:
        self.dismissed.append(reason)
        self.address = ""


class Scene:
    """One coordinator, one shard, and the processes of a cluster; all are warm."""

    def __init__(self, processes: str, lead: str, standby: str, server: str, replica: str) -> None:
        self.noted: list[dict[str, Any]] = []
        self.fed: list[Any] = []
        known = {one.address: one for one in map(at, processes.split())}
        self.fleet = SimpleNamespace(known=known, warmth=Warmth(cast(Any, None)), left_out={})
        self.fleet.cluster, self.fleet.lack = self._cluster, self._lack
        self.fleet.warmth.note(known)
        self.standbys = Standbys(at(standby).address if standby else "")
        self.shard = ShardState(0, server="server-0", in_sync=["replica-0-0"])
        self.posted = [self._post("server-0", server), self._post("replica-0-0", replica)]
        coordinator = SimpleNamespace(
            state=SimpleNamespace(shards=[self.shard]), takeover=SimpleNamespace(awaited_shards=set())
        )
        program = SimpleNamespace(plan=SimpleNamespace(protection=Protection()), cold=False)
        self.host = SimpleNamespace(
            program=program,
            peer=Peer(at(lead).address, "lead"),
            unavailable=UnavailableProcesses(),
            runs=True,
            elapsed_s=1.0,
            lead=SimpleNamespace(coordinator=coordinator),
            worker_pool=SimpleNamespace(addresses=set()),
            standbys=self.standbys,
            note=self.noted.append,
            feed=self.fed.append,
            new_background=partial(Background, self.fed.append),
        )
        self.seating = Seating(cast(Any, self.host), cast(Any, self.fleet), cast(Any, self))

    @staticmethod
    def _post(name: str, place: str) -> Any:
        return SimpleNamespace(name=name, shard=0, peer=Peer(at(place).address, name))

    async def _cluster(self) -> Any:
        return list(self.fleet.known.values()), set(self.fleet.known)

    async def _lack(self, address: str) -> str:
        return self.fleet.left_out.get(address, "")

    def replicate(self, name: str, place: str) -> None:
        """Let another replica be in sync."""
        self.posted.append(self._post(name, place))
        self.shard.in_sync.append(name)

    def drop(self, name: str) -> None:
        self.posted = [one for one in self.posted if one.name != name]
        self.shard.in_sync.remove(name)


def watched(scene: Scene, jump: Jump, *changes: tuple[float, Callable[[], None]], until: float = 10.0) -> Scene:
    """Look at a scene for so many seconds, in which it changes at the given times."""

    async def look() -> None:
        loop = asyncio.get_running_loop()
        for time, change in changes:
            loop.call_at(time, change)
        scene.seating.begin()
        await asyncio.sleep(until)
        scene.seating.close()

    jump(look())
    return scene


def said(scene: Scene) -> list[str]:
    return [one["what"] for one in scene.noted]


def test_what_the_run_survives_is_logged_when_it_changes(jump: Jump) -> None:
    scene = Scene("a1 a2 b1", "a1", "b1", "a1", "b1")
    watched(scene, jump, (3.0, scene.shard.in_sync.clear), (5.0, lambda: scene.shard.in_sync.append("replica-0-0")))
    assert said(scene) == ["any one host", "nothing", "any one host"]
    assert scene.noted[1] == {"kind": "survives", "at": 1.0, "what": "nothing", "why": "shard 0 has no replica in sync"}
    assert scene.fed == []


def test_without_a_standby_it_survives_nothing_and_nothing_moves(jump: Jump) -> None:
    scene = watched(Scene("a1 a2 b1", "a1", "", "a1", "a2"), jump)
    assert (said(scene), scene.fed) == (["nothing"], [])


def test_a_replica_on_its_servers_host_is_misplaced_once_there_is_another_host(jump: Jump) -> None:
    scene = Scene("a1 a2 a3", "a1", "a3", "a1", "a2")

    def join() -> None:
        scene.fleet.known[at("b1").address] = at("b1")
        scene.fleet.warmth.note([at("b1").address])

    watched(scene, jump, (5.0, join), until=6.5)
    assert scene.fed == [], "whoever has just come may go again"
    watched(scene, jump, until=20.0)
    assert scene.fed == [CopyMisplaced("replica-0-0", "moved away from the host of another copy of shard 0")]
    assert scene.standbys.dismissed == [], "one after the other"


def test_the_standby_moves_when_the_replica_has(jump: Jump) -> None:
    scene = Scene("a1 a2 a3 b1 b2", "a1", "a3", "a1", "a2")
    changes = (5.0, lambda: scene.replicate("replica-1", "b1")), (6.0, lambda: scene.drop("replica-0-0"))
    watched(scene, jump, *changes, until=12.0)
    assert [type(one) for one in scene.fed] == [CopyMisplaced]
    assert scene.standbys.dismissed == ["moved away from the host of its coordinator"]


def test_another_copy_is_not_kept_away_from_the_one_whose_place_it_takes(jump: Jump) -> None:
    """The host where the old one is may be the only one apart from the server's."""
    scene = Scene("a1 a2 b1 b2", "a1", "b2", "a1", "b1")
    scene.host.worker_pool.addresses.add(at("b1").address)
    watched(scene, jump, until=4.0)
    assert scene.fed == [CopyMisplaced("replica-0-0", "moved away from a gradient worker")]
    assert jump(scene.seating.for_copy(0)) == at("b2").address


def test_a_surplus_replica_is_told_of_until_it_goes(jump: Jump) -> None:
    scene = Scene("a1 b1 c1", "a1", "b1", "a1", "b1")
    scene.replicate("replica-1", "c1")
    watched(scene, jump, (4.0, lambda: scene.drop("replica-0-0")), until=8.0)
    assert {one.copy for one in scene.fed} == {"replica-0-0"}
    assert len(scene.fed) > 1


def test_nobody_is_placed_where_something_is_lacking_or_was_lost(jump: Jump) -> None:
    scene = Scene("a1 b1 c1 c2", "a1", "b1", "a1", "b1")
    scene.fleet.left_out[at("c1").address] = "has no module nets"
    assert jump(scene.seating.for_copy(0)) == at("c2").address
    scene.host.unavailable.lose("worker-1", at("c2").address)
    assert jump(scene.seating.for_copy(0)) is None
    assert jump(scene.seating.for_standby()) == at("b1").address
