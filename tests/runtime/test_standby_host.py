"""What a standby takes of its coordinator's word, and until when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Protection, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.events import Begin
from psplatform.core.protocol.place_messages import ActorAt, ActorReleased, Logged, LogWritten
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous
from psplatform.replication.stores.store import create_run
from psplatform.runtime.actors.coordinator import standby_host as module
from psplatform.runtime.actors.coordinator.standby_host import StandbyHost, StandbySnapshot, snapshot_of
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.pools.watching import ENDED
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.telemetry.log.segments import Position
from psplatform.telemetry.read_model import RunView

Network = Callable[..., Any]
Jump = Callable[[Any], Any]


async def nothing(*_: Any) -> bool:
    return False


class Held:
    """Stands for a fleet: the actors that it keeps."""

    def __init__(self) -> None:
        self.peers: set[Peer] = set()

    def hold(self, peers: Iterable[Peer]) -> None:
        self.peers.update(peers)

    def release(self, peer: Peer) -> None:
        self.peers.discard(peer)


@pytest.fixture
def following(
    network: Network, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[ReplicatedCoordinator, StandbyHost]]:
    """Make a lead that has begun, and whoever stands by for it and knows its server."""
    monkeypatch.setattr(module, "claim", nothing)

    def make(replicas: int = 1, program: Any = None) -> tuple[ReplicatedCoordinator, StandbyHost]:
        plan = Plan(
            "run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant(),
            protection=Protection(replicas),
        )  # fmt: skip
        lead = ReplicatedCoordinator(Coordinator(plan, Asynchronous()))
        lead.handle(Begin(), 0.0)
        coordinator, handled = lead.enlist(2, 0.0)
        one = StandbyHost(
            "run",
            program,
            network(lambda *_: asyncio.sleep(99)),
            peer,
            cast(Any, Held()),
            None,
            on_take_over=lambda: None,
            on_depart=lambda reason: None,
        )
        actors = {"server-0": ("copy", 0, peer)}
        snapshot = snapshot_of(coordinator, RunView())
        one.begin(StandbySnapshot(2, 2, snapshot, handled, 0.0, {}, (Position(1, 0), 0), (), actors), None, 0.0)
        return lead, one

    return make


def observed(lead: ReplicatedCoordinator, event: Any) -> msg.LogEntry:
    (found,) = (
        one.message
        for one in lead.handle(event, 1.0)
        if isinstance(one, Send) and isinstance(one.message, msg.LogEntry)
    )
    return found


def test_records_are_kept_until_the_store_has_them(following: Any, jump: Jump) -> None:
    """A mark counts the records of the whole term; those that it counts anew are the oldest."""

    async def hear() -> list[list[str]]:
        _, one = following()
        kept = []
        for note in (
            *(Logged({"kind": "note", "at": 1.0, "text": text}) for text in "abcd"),
            LogWritten(1, 1, 2),
            LogWritten(1, 2, 3),
        ):
            one.take(note)
            kept.append([record["text"] for record in one.unwritten])
        one.close()
        return kept[3:]

    assert jump(hear()) == [["a", "b", "c", "d"], ["c", "d"], ["d"]]


def test_of_what_it_has_witnessed_together_it_says_the_last(following: Any, jump: Jump) -> None:
    """One acknowledgment contains those before it, and each costs both sides as much as an event."""

    async def hear() -> tuple[list[Any], int]:
        lead, one = following()
        said: list[Any] = one.take_all([observed(lead, msg.Retiring("server-0")) for _ in range(3)])
        one.close()
        return said, lead.handled

    said, handled = jump(hear())
    assert said == [msg.Acknowledged(2, handled)]


def test_whoever_was_let_go_of_is_not_taken_over(following: Any, jump: Jump) -> None:
    async def hear() -> list[str]:
        _, one = following()
        one.take(ActorReleased("server-0"))
        one.close()
        return list(one.actors)

    assert jump(hear()) == []


def test_an_actor_is_kept_until_the_coordinator_has_released_it(following: Any, jump: Jump) -> None:
    """One that a standby went on keeping would stay in its process, with all that it has in memory."""

    async def hear() -> list[set[Peer]]:
        _, one = following()
        held = [set(one.fleet.peers)]
        one.take_all([ActorAt("worker-9", "tcp://10.0.0.1:1", "late", part="worker"), ActorReleased("server-0")])
        await asyncio.sleep(0.01)
        held.append(set(one.fleet.peers))
        one.take_all([ActorAt("worker-8", "tcp://10.0.0.1:1", "early", part="worker"), ActorReleased("worker-8")])
        one.take(ActorReleased("worker-9"))
        await asyncio.sleep(0.01)
        held.append(set(one.fleet.peers))
        one.close()
        return held

    at_first, later, in_the_end = jump(hear())
    assert [len(at_first), later, in_the_end] == [1, {Peer("tcp://10.0.0.1:1", "late")}, set()]


def test_what_came_of_an_event_that_it_will_not_see_is_not_known_either(following: Any, jump: Jump) -> None:
    """Else it knew that a server was let go of, and not that another serves: it would ask nobody, and wait."""

    async def hear() -> tuple[Any, ...]:
        lead, one = following()
        one.relieve()
        said = one.take(observed(lead, msg.Retiring("server-0")))
        for note in (
            ActorReleased("server-0"),
            Logged({"kind": "note", "at": 1.0, "text": "late"}),
            ActorAt("worker-9", "tcp://10.0.0.1:1", "late", part="worker"),
        ):
            said += one.take(note)
        one.close()
        return said, list(one.actors), one.unwritten, one.standby.coordinator.state.shards[0].retiring

    assert jump(hear()) == ([], ["server-0"], [], False)


@pytest.mark.parametrize(
    ("replicas", "store", "waits"),
    [(2, "seen", False), (2, "away", True), (2, "hangs", True), (2, "another's", True), (1, "away", False)],
    ids=str,
)
def test_a_standby_that_does_not_see_the_store_lets_another_go_first(
    following: Any, jump: Jump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replicas: int, store: str, waits: bool
) -> None:
    """It would claim its number, could not open the log, and the run would end although another sees the store."""
    claimed: list[float] = []

    async def claim(*_: Any) -> bool:
        claimed.append(asyncio.get_running_loop().time())
        return True

    path = tmp_path / "run.zarr"
    if store != "away":
        create_run(str(path), {"run": "another" if store == "another's" else "run"})
    monkeypatch.setattr(module, "claim", claim)

    async def look(check: Callable[[], None]) -> None:
        await asyncio.sleep(math.inf if store == "hangs" else 0)
        check()

    monkeypatch.setattr(asyncio, "to_thread", look)  # the clock would jump while a thread looks

    async def lose(*, in_good_order: bool) -> None:
        begins = asyncio.get_running_loop().time()
        _, one = following(replicas, SimpleNamespace(store=str(path), run="run", term=1))
        one.relieve() if in_good_order else one._on_lead_lost(ENDED)
        await asyncio.sleep(60.0)
        one.close()
        claimed[-1] -= begins

    jump(lose(in_good_order=False))
    jump(lose(in_good_order=True))
    at, after_notice = claimed
    assert (at >= TIMEOUTS.stand_aside_s) == waits
    assert after_notice == 0.0, "no other standby is asked, and the server beside the coordinator waits"
