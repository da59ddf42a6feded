"""A port for a server that is started later is none that the system hands out meanwhile."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from psplatform.client.clusters import ports
from psplatform.client.clusters.ports import free_port

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield int(one.getsockname()[1])


@pytest.fixture
def ephemeral(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the file that says which ports are ephemeral here."""
    file = tmp_path / "ip_local_port_range"
    monkeypatch.setattr(ports, "_RANGE", file)
    return file


def bind(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_is_not_ephemeral_and_can_be_bound() -> None:
    lowest = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32768
    if lowest <= 10000:
        pytest.skip("here all but the ports of well-known servers are ephemeral")
    found = free_port()
    assert 10000 <= found < lowest
    bind(found)


def test_a_port_that_is_taken_is_passed_over(taken: int, ephemeral: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ephemeral.write_text("32768\t60999\n")
    others = ports._candidates()
    monkeypatch.setattr(ports, "_candidates", lambda: [taken, *others])
    found = free_port()
    assert found in others
    bind(found)


def test_where_all_that_were_drawn_are_taken_the_system_chooses(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_candidates", lambda: [taken])
    found = free_port()
    assert found not in {0, taken}
    bind(found)


def test_ports_are_drawn_below_what_the_system_says(ephemeral: Path) -> None:
    ephemeral.write_text("10003\t60999\n")
    assert sorted(ports._candidates()) == [10000, 10001, 10002]


def test_where_nearly_all_ports_are_ephemeral_the_system_chooses(ephemeral: Path) -> None:
    ephemeral.write_text("1024\t65535\n")
    assert ports._candidates() == []
    bind(free_port())


@pytest.mark.parametrize("said", [None, "", "all of them"])
def test_where_the_system_says_nothing_usual_ports_are_drawn(ephemeral: Path, said: str | None) -> None:
    if said is not None:
        ephemeral.write_text(said)
    drawn = ports._candidates()
    assert len(set(drawn)) == len(drawn) > 1
    assert min(drawn) >= 10000
    assert max(drawn) < 32768


def test_programs_with_the_same_seed_draw_different_ports() -> None:
    """Two processes that test do have the same."""
    drawn = []
    for _ in range(2):
        random.seed(0)
        drawn.append(tuple(ports._candidates()))
    assert drawn[0] != drawn[1]
