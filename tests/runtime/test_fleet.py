"""Opening actors: what is waited for, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.runtime.calls import Peer, PeerLost
from psplatform.runtime.fleet import OPEN_LIMIT_S, SILENT_S, Fleet

Network = Callable[..., Any]
Jump = Callable[[Any], Any]


class Program:
    """Stands for what is opened."""

    term, run = 1, "run"


def opening(network: Any, peer: Peer) -> Any:
    async def open_and_look() -> tuple[Any, float]:
        try:
            found: Any = await Fleet(cast(Any, SimpleNamespace(rpc=network)), network, cast(Any, Program())).open(peer)
        except PeerLost as error:
            found = error
        return found, asyncio.get_running_loop().time()

    return open_and_look()


def test_a_process_that_answers_may_take_its_time(network: Network, peer: Peer, jump: Jump) -> None:
    def answer(method: str, *_: Any) -> Any:
        return asyncio.sleep(OPEN_LIMIT_S - 1, "open") if method == "open" else {}

    assert jump(opening(network(answer), peer)) == ("open", OPEN_LIMIT_S - 1)


def test_a_process_that_falls_silent_is_given_up(network: Network, peer: Peer, jump: Jump) -> None:
    async def slept() -> Any:
        await asyncio.sleep(0 if asyncio.get_running_loop().time() < 20 else 10 * OPEN_LIMIT_S)

    def answer(method: str, *_: Any) -> Any:
        return asyncio.sleep(10 * OPEN_LIMIT_S) if method == "open" else slept()

    found, at = jump(opening(network(answer), peer))
    assert isinstance(found, PeerLost)
    assert str(found) == f"{peer.address} fell silent for {SILENT_S:g} s while it opened {peer.key}"
    assert at == pytest.approx(20 + SILENT_S, abs=3)


def test_what_opening_raises_is_raised_at_once(network: Network, peer: Peer, jump: Jump) -> None:
    def answer(method: str, *_: Any) -> Any:
        raise OSError("connection reset")

    found, at = jump(opening(network(answer), peer))
    assert "connection reset" in str(found)
    assert at == 0
