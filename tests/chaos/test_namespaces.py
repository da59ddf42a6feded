"""Hosts made of namespaces: they share a network, which can be cut, and nothing else; and they leave nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from psplatform.bench.clusters import namespaces
from psplatform.bench.clusters.namespaces import Hosts, sweep, why_not
from psplatform.errors import ConfigurationError

PORT: Final = 7000

TELLS: Final = """
import json, os, socket, sys
here = {"name": socket.gethostname(), "seen": sorted(os.listdir("/dev/shm")), "pid": os.getpid()}
open("/dev/shm/own", "w").close()
with socket.create_server((sys.argv[1], 7000)) as server:
    while True:
        asked, _ = server.accept()
        with asked:
            asked.sendall(json.dumps(here).encode())
"""

ONE_LASTS: Final = """
import os, time
with open("begun", "a") as begun:
    begun.write("begun\\n")
try:
    os.mkdir("lasts")
except FileExistsError:
    pass  # another one does
else:
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def able() -> None:
    """Skip where no namespaces can be made."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Start two hosts that tell what they see."""
    with Hosts(("left", "right")) as hosts:
        for name in ("left", "right"):
            hosts[name].start([sys.executable, "-c", TELLS, hosts[name].address], tmp_path, {})
        yield hosts


def test_each_process_of_a_host_is_started_again_when_it_ends_whatever_the_others_do(
    tmp_path: Path, until: Callable[..., None]
) -> None:
    begun = tmp_path / "one" / "begun"
    with Hosts(("one",)) as hosts:
        hosts["one"].start([sys.executable, "-c", ONE_LASTS], tmp_path, {}, processes=2)
        until(lambda: begun.exists() and len(begun.read_text().split()) >= 3, "one is started again")


def ask(address: str, limit_s: float = 1.0) -> dict[str, Any] | None:
    """Return what a host tells; ``None`` if it cannot be reached, or has not begun to listen."""
    try:
        with socket.create_connection((address, PORT), timeout=limit_s) as asked:
            answer: dict[str, Any] = json.loads(asked.makefile().read())
            return answer
    except OSError:
        return None


def left_over(pid: int) -> list[str]:
    """Return the names of networks and links that a program has made."""
    lists = (["ip", "netns", "list"], ["ip", "-o", "link", "show"])
    lines = [line for one in lists for line in subprocess.check_output(one, text=True).splitlines()]
    return [line for line in lines if f"psplatform-{pid}-" in line or f"psb{pid}" in line or f"psv{pid}n" in line]


def test_each_host_has_a_name_processes_and_memory_of_its_own(hosts: Hosts, until: Callable[..., None]) -> None:
    told = {}
    for name in ("left", "right"):
        until(lambda name=name: ask(hosts[name].address) is not None, f"{name} answers")
        told[name] = ask(hosts[name].address) or {}
        assert (told[name]["name"], told[name]["seen"]) == (name, [])
        assert hosts.at(f"tcp://{hosts[name].address}:1") == name
    assert told["left"]["pid"] < 10 > told["right"]["pid"], "they count their processes from 1"
    assert hosts.at("tcp://127.0.0.1:1") == ""


def test_a_cut_host_is_out_of_reach_until_it_is_mended_and_a_killed_one_is_gone(
    hosts: Hosts, until: Callable[..., None]
) -> None:
    left = hosts["left"]
    until(lambda: ask(left.address) is not None, "it answers")
    left.cut()
    assert ask(left.address) is None
    assert left.is_up, "it goes on by itself"
    left.mend()
    until(lambda: ask(left.address) is not None, "it answers again")
    assert left.kill() >= 3, "its first process, its program, and what made its namespaces"
    assert not left.is_up
    assert ask(left.address) is None
    until(lambda: ask(hosts["right"].address) is not None, "the other goes on")


def test_hosts_leave_nothing_and_what_a_killed_program_has_left_is_swept() -> None:
    program = (
        "import os; from psplatform.bench.clusters.namespaces import Hosts; Hosts(('one',)); os.kill(os.getpid(), 9)"
    )
    for _ in range(5):  # another program of this machine that makes hosts may sweep before
        killed = subprocess.Popen([sys.executable, "-c", program])
        killed.wait()
        if left := left_over(killed.pid):
            break
    assert left, "nothing could take them away"
    with Hosts(("two",)):
        assert left_over(killed.pid) == []
        assert left_over(os.getpid())
        sweep()
        assert left_over(os.getpid()), "only those of programs that have ended"
    assert left_over(os.getpid()) == []


def test_what_is_missing_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigurationError, match="root's rights; run this as root"):
        Hosts(("one",))
    monkeypatch.undo()
    monkeypatch.setattr(namespaces, "_TOOLS", ("ip", "no-such-command"))
    assert "no command no-such-command here" in why_not()


def test_what_goes_through_an_interface_is_counted_and_limited(hosts: Hosts, until: Any) -> None:
    """A limit that is set again takes the place of the one before."""
    left = hosts["left"]
    before = left.traffic
    until(lambda: _answers(left.address), "the host answers")
    for mbit in (100.0, 50.0):
        left.limit(mbit)
        assert _answers(left.address)
    assert all(one < other for one, other in zip(before, left.traffic, strict=True))


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, PORT), timeout=5) as asked:
            return bool(asked.recv(1))
    except OSError:
        return False
