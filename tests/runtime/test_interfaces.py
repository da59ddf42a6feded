"""What interfaces of this host carry, and what a coordinator is told of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from psplatform.core.protocol.messages import Carried
from psplatform.core.workers.counting import Counted
from psplatform.runtime.actors.coordinator import own_interface
from psplatform.runtime.actors.coordinator.own_interface import OwnInterface
from psplatform.runtime.comms.interfaces import counter_of

OTHER = Carried("w1", "10.0.0.2", (0.125,), (1,), (2,))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.3.1", "::1", "192.0.2.77", "a-name", ""])
def test_what_passes_no_interface_of_this_host_is_not_counted(host: str) -> None:
    assert counter_of(host) is None


def test_the_interface_of_an_address_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several, the one that has it; one that is taken away has carried nothing."""
    counters = {
        "lo": SimpleNamespace(bytes_sent=9, bytes_recv=9),
        "eth1": SimpleNamespace(bytes_sent=1000, bytes_recv=2000),
    }
    addresses = {
        "lo": [SimpleNamespace(address="127.0.0.1")],
        "eth1": [SimpleNamespace(address="fe80::1"), SimpleNamespace(address="10.0.0.1")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic, nowrap: counters)
    read = counter_of("10.0.0.1")
    assert read is not None
    assert read() == Counted(1000, 2000)
    del counters["eth1"]
    assert read() == Counted(0, 0)


def test_a_coordinator_counts_as_long_as_others_say_what_they_carry(
    jump: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_interface, "counter_of", lambda host: lambda: Counted(0, 0) if host == "10.0.0.1" else None)
    said: list[Carried] = []

    async def run() -> list[int]:
        found = OwnInterface("tcp://10.0.0.1:4000", asyncio.get_running_loop().time, said.append)
        counts = []
        for event in (None, Carried("coordinator", "10.0.0.1", (), (), ()), OTHER):
            found.note(event)
            await asyncio.sleep(0.7)
            counts.append(len(said))
        await asyncio.sleep(60.0)
        counts.append(len(said))
        found.note(OTHER)
        found.close()
        await asyncio.sleep(60.0)
        return [*counts, len(said)]

    assert jump(run()) == [0, 0, 1, 2, 2]
    assert {(one.source, one.host) for one in said} == {("coordinator", "10.0.0.1")}


def test_a_coordinator_whose_host_has_no_interface_counts_nothing(jump: Callable[[Any], Any]) -> None:
    said: list[Carried] = []

    async def run() -> None:
        OwnInterface("tcp://127.0.0.1:4000", asyncio.get_running_loop().time, said.append).note(OTHER)
        await asyncio.sleep(10.0)

    jump(run())
    assert said == []
