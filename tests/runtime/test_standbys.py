"""The standbys as their coordinator sees them: which one is lost, and what is told to whom."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.protocol.events import StandbyLost
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.pools.standby_client import StandbyClient
from psplatform.runtime.pools.standbys import Standbys

HERE, THERE = Peer("tcp://10.0.0.2:1", "standby-2"), Peer("tcp://10.0.0.3:1", "standby-1-3")


class Host:
    """A coordinator's process that notes what it is fed."""

    term = 1

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.without: list[int] = []
        self.unavailable = UnavailableProcesses()
        self.leading = SimpleNamespace(lead=SimpleNamespace(without_standby=self.without.append))
        self.placed: list[tuple[set[str], set[str]]] = []
        self.copies = SimpleNamespace(seating=SimpleNamespace(for_standby=self._for_standby))
        self.new_background = Background

    def feed(self, event: Any) -> None:
        self.events.append(event)

    async def _for_standby(self, standbys: set[str], but: set[str]) -> str:
        self.placed.append((set(standbys), set(but)))
        return "tcp://10.0.0.4:1"


async def _offer(term: int, number: int) -> None:
    """Offer nothing: there is no scheduler."""


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def standbys(host: Host) -> Standbys:
    """Make the side of a coordinator that has two standbys."""
    fleet = cast(Any, SimpleNamespace(release=lambda peer: None, offer=_offer))
    made = Standbys(cast(Any, host), fleet)
    for number, peer in ((2, HERE), (3, THERE)):
        one = StandbyClient(cast(Any, host), fleet, number, made._place, made._on_ended)
        one.peer, one.address, one.was_told, one._line = peer, peer.address, True, cast(Any, Silent())
        made._deputies[number] = one
    return made


class Silent:
    """Stands for a line to a standby; keeps what is said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, message: Any, within_s: float = 0.0) -> None:
        self.said.append(message)

    def close(self) -> None:
        """Nothing is open."""


def test_every_standby_is_told_everything(standbys: Standbys) -> None:
    standbys.tell("this")
    assert [cast(Any, one._line).said for one in standbys._deputies.values()] == [["this"], ["this"]]
    assert standbys.roles() == {"standby": HERE.address, "standby-2": THERE.address}
    assert standbys._beside(3) == {HERE.address}


def test_the_coordinator_hears_which_standby_is_lost_and_nothing_is_made_there(standbys: Standbys, host: Host) -> None:
    standbys.lose_process(HERE.address, "process ended")
    assert host.events == [StandbyLost(2, "process ended")]
    assert standbys.following == (THERE.address,)
    assert host.unavailable.addresses == {HERE.address}
    standbys.lose_process(HERE.address, "its Dask worker left the cluster")
    assert len(host.events) == 1, "it is told once"


def test_another_process_that_is_lost_is_none_of_its_business(standbys: Standbys, host: Host) -> None:
    standbys.lose_process("tcp://10.0.0.9:1", "process ended")
    assert (host.events, len(standbys.peers)) == ([], 2)


def test_one_that_could_not_be_made_is_made_when_there_are_other_processes(standbys: Standbys, host: Host) -> None:
    """It has been told nothing, so it could not take over, and its number need not be claimed."""
    standbys._deputies[3].was_told, standbys._deputies[3].address = False, ""
    standbys._on_ended(3, "there is no process for it")
    assert (host.events, host.without) == ([], [])
    standbys.on_processes_changed()
    assert host.without == [3]
    standbys.on_processes_changed()
    assert host.without == [3]


def test_one_whose_process_ends_as_it_is_made_is_made_in_another_at_once(standbys: Standbys, host: Host) -> None:
    """A host is lost process by process: the first that is chosen may be the next to end."""
    standbys._deputies[3].was_told = False
    standbys._on_ended(3, "left the cluster before it had made it")
    assert host.without == [3], "the coordinator appoints another, without waiting for the cluster to change"
    assert asyncio.run(standbys._place(4)) == "tcp://10.0.0.4:1"
    assert host.placed == [({HERE.address}, {THERE.address})], "not where it could not be made"
    standbys.on_processes_changed()
    asyncio.run(standbys._place(4))
    assert host.placed[-1] == ({HERE.address}, set()), "it may be able by now"


@pytest.mark.parametrize(
    ("error", "is_able"), [(ValueError("no such class"), False), (PeerLost("gone", peer="here"), True)]
)
def test_a_standby_that_cannot_begin_is_lost_and_nothing_is_kept_for_it(
    host: Host, standbys: Standbys, network: Any, error: Exception, is_able: bool
) -> None:
    """Else every decision would wait for it until its lease is over, and all events be kept until the run's end."""
    standbys._deputies.clear()
    told: list[str] = []

    async def create(*_: Any) -> Peer:
        return THERE

    def refuse(method: str, *_: Any) -> None:
        raise error

    async def make() -> StandbyClient:
        fleet = cast(Any, SimpleNamespace(release=lambda peer: None, offer=_offer, create=create))
        around: Any = host
        around.connect, around.program, around.peer, around.actor = network(refuse), None, HERE, None
        around.new_background = lambda: Background(told.append)
        one = StandbyClient(around, fleet, 4, standbys._place, standbys._on_ended)
        one._snapshot = lambda: None  # type: ignore[method-assign, assignment, return-value]
        standbys._deputies[4] = one
        await one._make()
        return one

    one = asyncio.run(make())
    assert [type(event) for event in host.events] == [StandbyLost]
    assert (one.peer, standbys._deputies) == (None, {})
    one.tell("what is decided later")
    assert one._early is None
    place = "tcp://10.0.0.4:1"
    assert host.unavailable.addresses == ({THERE.address} if is_able else set()), "its process goes on"
    assert told == ([] if is_able else ["ValueError: no such class"])
    asyncio.run(standbys._place(5))
    assert host.placed[-1][1] == (set() if is_able else {place}), "it is tried where it has not failed yet"
