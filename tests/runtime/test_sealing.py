"""Checkpoints that are given up, in the coordinator's process: what they left is removed, and nothing else."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from psplatform.core.protocol.effects import Seal
from psplatform.core.protocol.events import CheckpointFailed
from psplatform.errors import StoreError
from psplatform.replication.checkpoints.retention import discard
from psplatform.replication.stores.store import create_run
from psplatform.runtime.comms.background import Background
from psplatform.runtime.store import sealing
from psplatform.runtime.store.sealing import Sealer

Jump = Callable[[Any], Any]
MISHAP = "mishap"


class FakeHost:
    """A coordinator's process with a store, that notes what it is told."""

    def __init__(self, store: Path) -> None:
        create_run(str(store), {"run": "run"})
        self.program = SimpleNamespace(store=str(store), run="run", term=1)
        self.told: list[Any] = []

    def feed(self, event: Any) -> None:
        self.told.append(event)

    def new_background(self) -> Background:
        return Background(lambda text: self.told.append((MISHAP, text)))


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path / "run.zarr")


@pytest.fixture
def sealer_of(host: FakeHost) -> Callable[[], Any]:
    """Make a sealer; for the loop that it is used on."""
    return lambda: Sealer(host)  # type: ignore[arg-type]  # it needs no more of its host


def write(host: FakeHost, number: int, name: str = "model/weight/c/0") -> Path:
    """Write an object of a checkpoint, and return the checkpoint's folder."""
    folder = Path(host.program.store) / "checkpoints" / f"{number:08d}"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"x" * 100)
    return folder


async def settled(sealer: Any) -> None:
    """Wait until nothing is under way."""
    await asyncio.gather(*sealer._background._tasks, return_exceptions=True)


def test_one_that_is_given_up_is_removed_and_the_others_stay(
    host: FakeHost, sealer_of: Callable[[], Any], jump: Jump
) -> None:
    sealed, given_up, begun = write(host, 1, "manifest.jsonl"), write(host, 2), write(host, 3)

    async def give_up() -> None:
        sealer = sealer_of()
        sealer.discard(1)
        sealer.discard(2)
        await settled(sealer)

    jump(give_up())
    assert [folder.exists() for folder in (sealed, given_up, begun)] == [True, False, True]
    assert host.told == []


def test_a_store_that_refuses_to_remove_is_no_trouble_for_the_run(
    host: FakeHost, sealer_of: Callable[[], Any], jump: Jump
) -> None:
    """What it refuses stays until the next checkpoint is sealed."""
    shutil.rmtree(host.program.store)
    Path(host.program.store).write_text("a file stands where the store belongs")

    async def give_up() -> None:
        sealer = sealer_of()
        sealer.discard(1)
        await settled(sealer)

    jump(give_up())
    assert host.told == []


def test_removing_waits_for_the_seal_that_is_under_way(
    host: FakeHost, sealer_of: Callable[[], Any], jump: Jump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no manifest names what is gone, and what a seal that fails has written goes as well."""
    folder, removing = write(host, 1), threading.Event()
    overtaken: list[bool] = []

    def seal_slowly(sealer: Sealer, effect: Seal) -> int:
        overtaken.append(removing.wait(0.2))
        write(host, 1, "model/weight/c/1")
        raise StoreError("disk full", store=host.program.store)

    def remove(store: str, number: int) -> None:
        removing.set()
        discard(store, number)

    monkeypatch.setattr(Sealer, "_write", seal_slowly)
    monkeypatch.setattr(sealing, "discard", remove)

    async def give_up() -> None:
        sealer = sealer_of()
        sealer.seal(Seal(1, 4, (), {}))
        sealer.discard(1)
        await settled(sealer)

    jump(give_up())
    assert overtaken == [False]
    assert not folder.exists()
    assert host.told == [CheckpointFailed(1, "disk full")]


def test_what_was_never_sealed_is_removed_at_the_end(host: FakeHost, sealer_of: Callable[[], Any], jump: Jump) -> None:
    """A copy may have written on after its checkpoint was given up; what is sealed stays."""
    sealed, written_on = write(host, 1, "manifest.jsonl"), write(host, 2)

    async def end() -> None:
        await sealer_of().close()

    jump(end())
    assert [folder.exists() for folder in (sealed, written_on)] == [True, False]
    assert host.told == []
