"""Who is watched, and how the end of a process is told from a connection that breaks."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.pools.watching import ENDED, watch

Network = Callable[..., Any]
Child = tuple["subprocess.Popen[str]", ProcessId]

LIMIT_S = 180.0
NEVER = 1e9


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


async def reason_of(network: Any, peer: Peer) -> str:
    heard: list[str] = []
    await asyncio.wait_for(watch(network, peer, heard.append), LIMIT_S)
    (reason,) = heard
    return reason


def test_a_process_of_this_host_is_lost_when_the_kernel_ends_it_and_its_sockets_need_not_be_closed(
    network: Network, begin: Callable[[int], Child]
) -> None:
    running, process = begin(1)

    def answer(method: str, wait_s: float) -> Any:
        return asyncio.sleep(wait_s and NEVER, process)

    async def look() -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:  # somebody listens on
            peer = Peer(f"tcp://127.0.0.1:{server.getsockname()[1]}", "a")
            looking = asyncio.create_task(reason_of(network(answer), peer))
            await asyncio.sleep(0.3)
            assert not looking.done()
            running.kill()
            return await looking

    assert asyncio.run(look()) == ENDED


def test_one_of_another_host_is_lost_when_nobody_listens_any_more(network: Network) -> None:
    async def look() -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:
            peer = Peer(f"tcp://127.0.0.1:{server.getsockname()[1]}", "a")

            async def until_it_breaks() -> None:
                await asyncio.sleep(0.1)
                server.close()
                raise OSError("connection reset")

            def answer(method: str, wait_s: float) -> Any:
                return until_it_breaks() if wait_s else None

            return await reason_of(network(answer), peer)

    assert asyncio.run(look()) == "closed connection"


def test_one_that_is_gone_before_anything_was_heard_is_lost(network: Network) -> None:
    def answer(method: str, wait_s: float) -> Any:
        return asyncio.sleep(NEVER)

    assert asyncio.run(reason_of(network(answer), Peer(f"tcp://127.0.0.1:{closed_port()}", "a"))) == "closed connection"


def test_calls_that_break_one_after_the_other_are_the_end_even_if_somebody_listens(network: Network) -> None:
    def answer(method: str, wait_s: float) -> Any:
        raise OSError("refused")

    async def look() -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:
            return await reason_of(network(answer), Peer(f"tcp://127.0.0.1:{server.getsockname()[1]}", "a"))

    assert "refused" in asyncio.run(look())


def test_one_whose_process_is_known_is_left_in_peace_at_first(
    network: Network, peer: Peer, begin: Callable[[int], Child]
) -> None:
    running, process = begin(2)
    calls = network(lambda *_: asyncio.sleep(NEVER))

    async def look() -> list[str]:
        heard: list[str] = []
        looking = asyncio.create_task(watch(calls, peer, heard.append, process))
        await asyncio.sleep(0.2)
        running.kill()
        await asyncio.wait_for(looking, LIMIT_S)
        return heard

    assert asyncio.run(look()) == [ENDED]
    assert calls.calls == []


def test_one_that_was_gone_before_is_asked_after_all(network: Network, begin: Callable[[int], Child]) -> None:
    running, process = begin(1)
    running.kill()
    running.wait()

    async def look() -> str:
        heard: list[str] = []
        peer = Peer(f"tcp://127.0.0.1:{closed_port()}", "a")
        await asyncio.wait_for(watch(network(lambda *_: asyncio.sleep(NEVER)), peer, heard.append, process), LIMIT_S)
        return heard[0]

    assert asyncio.run(look()) == "closed connection"


def test_silence_is_not_the_end(network: Network, peer: Peer, jump: Callable[[Any], Any]) -> None:
    async def look() -> bool:
        looking = asyncio.create_task(watch(network(lambda *_: asyncio.sleep(NEVER)), peer, pytest.fail))
        await asyncio.sleep(1000)
        done = looking.done()
        looking.cancel()
        return done

    assert not jump(look())
