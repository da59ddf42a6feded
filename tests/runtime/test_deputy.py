"""The standby as its coordinator sees it: which one is lost, and what is told to whom."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.events import StandbyLost
from psplatform.runtime.absent import Absent
from psplatform.runtime.calls import Peer
from psplatform.runtime.deputy import Deputy


class Host:
    """A coordinator's process that notes what it is fed."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.absent = Absent()
        self.on_mishap: Callable[[str], None] = lambda text: None

    def feed(self, event: Any) -> None:
        self.events.append(event)

    def announce(self) -> None:
        """Programs may look: there is nobody here."""


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def deputy(host: Host, peer: Peer) -> Deputy:
    """Make the side of a coordinator whose third standby is at work."""
    one = Deputy(cast(Any, host), cast(Any, SimpleNamespace(release=lambda peer: None)))
    one._number, one._peer = 3, peer
    return one


def test_a_late_word_of_a_former_standby_does_not_end_the_present_one(deputy: Deputy, host: Host, peer: Peer) -> None:
    deputy._lose(2, "closed connection")
    assert host.events == []
    assert deputy.peer == peer


def test_the_coordinator_hears_that_its_standby_is_lost_and_nobody_is_hired_there(
    deputy: Deputy, host: Host, peer: Peer
) -> None:
    deputy.lose_process(peer.address, "process ended")
    assert host.events == [StandbyLost(3, "process ended")]
    assert deputy.peer is None
    assert host.absent.addresses == {peer.address}


def test_another_process_that_is_lost_is_none_of_its_business(deputy: Deputy, host: Host, peer: Peer) -> None:
    deputy.lose_process("tcp://10.0.0.9:1", "process ended")
    assert (host.events, deputy.peer) == ([], peer)
