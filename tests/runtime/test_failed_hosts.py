"""What a coordinator's process or a standby's gives back where it cannot do its part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.errors import StoreError
from psplatform.runtime.actors.coordinator import host as module
from psplatform.runtime.actors.coordinator.host import CoordinatorHost

Jump = Callable[[Any], Any]


class Place:
    """Stands for the process: what was done there, in that order."""

    connect = client = peer = None

    def __init__(self, over: asyncio.Event) -> None:
        self.done: list[str] = []
        self._over = over
        self.fleet = SimpleNamespace(hold=lambda peers: self.done.append("hold"))

    async def close(self) -> None:
        self.done.append("close")

    async def leave(self) -> None:
        self._over.set()
        self.done.append("leave")


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """Collect the processes that hosts have settled in."""
    found: list[Place] = []

    async def enter(program: Any, actor: type, key: str, over: asyncio.Event, *_: Any) -> Place:
        found.append(Place(over))
        return found[-1]

    monkeypatch.setattr(module.HostProcess, "enter", enter)
    return found


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no log be opened."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise StoreError("the store cannot be reached", store="runs/my.zarr")

    monkeypatch.setattr(module, "keeper_of", refuse)
    monkeypatch.setattr(module.Tenure, "succeed", refuse)


PROGRAM: Any = SimpleNamespace(store="runs/my.zarr", term=1)


@pytest.mark.usefixtures("no_store")
def test_a_coordinator_that_cannot_open_its_log_gives_back_what_it_has_taken(places: list[Place], jump: Jump) -> None:
    async def start() -> None:
        with pytest.raises(StoreError):
            await CoordinatorHost("run").open(PROGRAM, cast(Any, None), "key")

    jump(start())
    assert [one.done for one in places] == [["close"]]


class Unreadable:
    """Stands for a standby's host whose snapshot cannot be read."""

    def __init__(self, *_: Any, **hooks: Any) -> None:
        self.take_over = hooks["on_take_over"]

    def begin(self, *_: Any) -> None:
        raise ValueError("no such class")


class Following(Unreadable):
    """Stands for one that follows."""

    def begin(self, *_: Any) -> None:
        """Follow."""


@pytest.fixture
def stand_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Let a host stand by for a coordinator."""
    monkeypatch.setattr(module, "grants_of", lambda program: None)

    async def begin(host: CoordinatorHost, kind: type) -> None:
        monkeypatch.setattr(module, "StandbyHost", kind)
        await host.stand_by(PROGRAM, "key", cast(Any, None), cast(Any, None))

    return begin


def test_a_standby_that_cannot_read_what_it_begins_with_gives_back_what_it_has_taken(
    places: list[Place], stand_by: Any, jump: Jump
) -> None:
    async def follow() -> None:
        with pytest.raises(ValueError, match="no such class"):
            await stand_by(CoordinatorHost("run"), Unreadable)

    jump(follow())
    assert [one.done for one in places] == [["hold", "close"]]


@pytest.mark.usefixtures("no_store")
def test_a_standby_that_cannot_take_over_leaves_the_run(places: list[Place], stand_by: Any, jump: Jump) -> None:
    """It would hold all actors of a run that nobody leads, and programs would wait for it."""

    async def take_over() -> tuple[str, bool]:
        host = CoordinatorHost("run")
        await stand_by(host, Following)
        assert host._standby_host is not None
        cast(Any, host._standby_host).take_over()
        await asyncio.sleep(1.0)
        return (await host.status(99.0))["phase"], asyncio.get_running_loop().time() < 2.0

    assert jump(take_over()) == ("standing by", True)
    assert [one.done for one in places] == [["hold", "leave"]]
