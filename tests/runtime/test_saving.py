"""Saving a model in a store that was removed just before: it is waited for, and never written into another's."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from psplatform.errors import StoreError
from psplatform.replication.stores.guard import StoreGone, StoreGuard, StoreTaken
from psplatform.replication.stores.store import create_run
from psplatform.runtime.actors.evaluation import keep_in_store

Jump = Callable[[Any], Any]
MINE = "digits-bsp-1a2b3c"


@pytest.fixture
def saving(tmp_path: Path) -> Callable[[dict[int, Callable[[str], None]]], Any]:
    """Save in a removed store; what happens to it before an attempt is given by the attempt's number."""

    async def save(happens: dict[int, Callable[[str], None]]) -> list[int]:
        store, attempts = str(tmp_path / "run.zarr"), [0]
        create_run(store, {"run": MINE})

        class Watched(StoreGuard):
            def within(self, write: Callable[[], Any]) -> Any:
                attempts[0] += 1
                happens.get(attempts[0], lambda place: None)(store)
                return super().within(write)

        saved: list[int] = []
        await keep_in_store(Watched(store, MINE, 1), lambda: saved.append(attempts[0]))
        return saved

    return save


def test_a_store_that_is_made_anew_gets_the_model(saving: Any, jump: Jump) -> None:
    remade = {1: shutil.rmtree, 4: lambda place: create_run(place, {"run": MINE})}
    assert jump(saving(remade)) == [4]


def test_one_that_is_not_made_anew_is_named_after_a_while(saving: Any, jump: Jump) -> None:
    with pytest.raises(StoreGone, match=f"was removed while run {MINE} went on"):
        jump(saving({1: shutil.rmtree}))


def test_one_that_another_run_has_by_now_is_not_waited_for(saving: Any, jump: Jump) -> None:
    def take(place: str) -> None:
        shutil.rmtree(place)
        create_run(place, {"run": "mlp-asp-4d5e6f"})

    async def clocked() -> float:
        with pytest.raises(StoreTaken, match="now holds run mlp-asp-4d5e6f"):
            await saving({1: take})
        return asyncio.get_running_loop().time()

    assert jump(clocked()) == 0.0


def test_what_fails_for_another_reason_is_not_tried_again(saving: Any, jump: Jump, tmp_path: Path) -> None:
    """A full disk, say: the run says at its end that it could not save."""
    store = str(tmp_path / "run.zarr")

    def refuse(place: str) -> None:
        raise StoreError("no space left", store=place)

    with pytest.raises(StoreError, match="no space left"):
        jump(saving({1: refuse}))
    assert Path(store).exists()
