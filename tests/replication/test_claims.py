"""Claims to go on with a run: one program at a time has it, and one that was killed keeps nobody from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from psplatform.errors import ConfigurationError, StoreError
from psplatform.replication.stores import claims
from psplatform.replication.stores.claims import LIMIT_S, Claimant, claim_recovery, claims_made
from psplatform.replication.stores.store import create_run

TAKEN = "another program has begun to go on with the run in"
ME = Claimant("there", "a boot", 7, 70, 0.0)


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path / "run.zarr") if request.param == "folder" else f"memory://{uuid4().hex}/run.zarr"
    create_run(place, {"run": "digits-bsp-1a2b3c"})
    return place


def made_now(**changes: Any) -> Claimant:
    return replace(ME, at=time.time(), **changes)


def test_only_one_program_goes_on_with_a_run(store: str) -> None:
    """Whoever comes second is told; what was given up, or has itself been gone on with since, can be claimed."""
    first = claim_recovery(store, 1)
    with pytest.raises(ConfigurationError, match=f"{TAKEN} .*; attach to it"):
        claim_recovery(store, 1)
    claim_recovery(store, 4)
    first.release()
    claim_recovery(store, 1)


def test_a_server_that_writes_nothing_on_a_condition_is_looked_at_first(
    memory_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = MemoryFileSystem.pipe_file

    def unconditional(files: MemoryFileSystem, path: str, value: bytes, mode: str = "overwrite") -> None:
        if mode == "create":
            raise NotImplementedError
        write(files, path, value)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", unconditional)
    claim_recovery(memory_run, 1)
    with pytest.raises(ConfigurationError, match="another program has begun"):
        claim_recovery(memory_run, 1)


def test_a_claim_names_its_program_and_when_it_may_be_taken_over(store: str) -> None:
    claim_recovery(store, 1, made_now())
    with pytest.raises(ConfigurationError) as caught:
        claim_recovery(store, 1, made_now(pid=8))
    said = str(caught.value)
    assert "(process 7 of there); attach to it instead" in said
    assert f"try again when its claim is {LIMIT_S:g} s old" in said
    assert "\n" not in said


def test_the_claim_of_a_program_that_has_ended_is_taken_over(store: str) -> None:
    first = claim_recovery(store, 1, made_now())
    second = claim_recovery(store, 1, made_now(pid=8), is_gone=lambda one: one.pid == 7)
    assert (first.number, second.number, claims_made(store, 1)) == (1, 2, 2)
    second.require()
    with pytest.raises(ConfigurationError, match=TAKEN):
        first.require()
    with pytest.raises(ConfigurationError, match="process 8 of there"):
        claim_recovery(store, 1, made_now(pid=9), is_gone=lambda one: one.pid == 7)


def test_a_claim_is_taken_over_when_it_is_old(store: str) -> None:
    claim_recovery(store, 1, replace(ME, at=time.time() - LIMIT_S + 60))
    with pytest.raises(ConfigurationError, match=TAKEN):
        claim_recovery(store, 1, made_now())
    claim_recovery(store, 2, replace(ME, at=time.time() - LIMIT_S - 1))
    assert claim_recovery(store, 2, made_now()).number == 2


def test_a_claim_without_a_word_is_as_old_as_its_file(tmp_path: Path) -> None:
    """Those of earlier versions are empty; so is one that says nothing of sense."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    for term, content in enumerate((b"", b"{", b"[1]", json.dumps({"pid": "x"}).encode()), 1):
        path = tmp_path / "run.zarr" / "recovered" / f"{term:08d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=TAKEN):
            claim_recovery(store, term, made_now())
        os.utime(path, (time.time() - LIMIT_S - 1,) * 2)
        assert claim_recovery(store, term, made_now()).number == 2


def test_who_did_not_know_of_a_claim_does_not_take_it_over(store: str) -> None:
    """Its term would be that of the program before it, which may only have been stopped."""
    claim_recovery(store, 1, made_now(), after=0)
    with pytest.raises(ConfigurationError, match=TAKEN):
        claim_recovery(store, 1, made_now(pid=8), after=0, is_gone=lambda one: True)
    assert claim_recovery(store, 1, made_now(pid=8), after=1, is_gone=lambda one: True).number == 2


def test_a_claim_that_is_released_while_it_is_taken_over_is_not_held_twice(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who takes it over finds another in its place, and leaves it to that one."""
    first = claim_recovery(store, 1, made_now())
    make = claims._Claims.make

    def make_late(these: Any, number: int, claimant: Claimant | None) -> None:
        if number == 2:
            first.release()
            make(these, 1, made_now(pid=9))
        make(these, number, claimant)

    monkeypatch.setattr(claims._Claims, "make", make_late)
    with pytest.raises(ConfigurationError, match=TAKEN):
        claim_recovery(store, 1, made_now(pid=8), is_gone=lambda one: one.pid == 7)
    assert claims_made(store, 1) == 1


def test_a_link_in_the_place_of_a_claim_is_not_followed(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    create_run(str(store), {"run": "digits-bsp-1a2b3c"})
    outside = tmp_path / "outside"
    outside.write_text(json.dumps({"machine": "m", "host": "h", "pid": 1, "began": 1, "at": 0.0}))
    (store / "recovered").mkdir()
    (store / "recovered" / "00000001").symlink_to(outside)
    os.utime(outside)
    with pytest.raises((ConfigurationError, StoreError), match="another program has begun"):
        claim_recovery(str(store), 1, made_now())


CLAIM = """
import os, signal, sys, time
from psplatform.client.runs.claiming import is_gone, this_claimant
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.claims import claim_recovery, claims_made

store, way = sys.argv[1:]
after = claims_made(store, 1)
print("ready", flush=True)
sys.stdin.readline()
try:
    held = claim_recovery(store, 1, this_claimant(), after=after, is_gone=is_gone)
except ConfigurationError:
    print("taken", flush=True)
else:
    if way == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"held {held.number}", flush=True)
    sys.stdin.readline()
    held.require()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Start programs that claim when they are told to; they are ended after the test."""
    started: list[subprocess.Popen[str]] = []

    def one(store: str, way: str = "hold") -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", CLAIM, store, way]
        started.append(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield one
    for program in started:
        program.kill()
        program.communicate()


def line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def tell(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None
    program.stdin.write("go\n")
    program.stdin.flush()


def test_programs_killed_as_they_claim_block_nobody_and_of_several_one_goes_on(tmp_path: Path, start: Start) -> None:
    """Real processes: one is killed with the claim in its hand, and then three try at the same moment."""
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    killed = start(store, "die")
    assert line(killed) == "ready"
    tell(killed)
    assert killed.wait(120) == -signal.SIGKILL
    assert claims_made(store, 1) == 1
    racing = [start(store) for _ in range(3)]
    assert [line(one) for one in racing] == ["ready"] * 3
    for one in racing:
        tell(one)
    assert sorted(line(one) for one in racing) == ["held 2", "taken", "taken"]
    assert claims_made(store, 1) == 2
