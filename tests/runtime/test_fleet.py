"""Opening actors: what is waited for, and for how long; and where none is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.runtime.calls import Peer, PeerLost
from psplatform.runtime.fleet import LATE_ASK_LIMIT_S, OPEN_LIMIT_S, SILENT_S, Fleet
from psplatform.runtime.references import Lack

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


class Asked:
    """Stands for a client whose Dask workers answer what they lack of the module `nets`."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), 0

    async def run(self, function: Any, references: Any, *, workers: list[str], on_error: str) -> dict[str, Any]:
        self.asked += 1
        answer = self.answers.pop(0)
        return {workers[0]: await answer if asyncio.iscoroutine(answer) else answer}


LACKING = (Lack("nets:Net", "absent", "nets", "has no module nets"),)
THERE = "tcp://10.0.0.1:1234"


def fleet_of(client: Any, references: Any) -> tuple[Fleet, list[str]]:
    said: list[str] = []
    program = SimpleNamespace(term=1, run="run", references=references)
    fleet = Fleet(client, None, cast(Any, program))
    fleet.on_left_out = said.append
    return fleet, said


def test_who_lacks_a_module_is_left_out_is_said_once_and_asked_again(jump: Jump) -> None:
    client = Asked(LACKING, LACKING, ())

    async def ask() -> None:
        fleet, said = fleet_of(client, {"model": ("nets:Net",)})
        assert [await fleet.lack(THERE) for _ in range(2)] == ["has no module nets"] * 2
        assert fleet.left_out == {THERE: "has no module nets"}
        (text,) = said
        assert text.startswith(f"the Dask worker {THERE} is left out: it has no module nets; bring it there, and that")
        assert await fleet.lack(THERE) == await fleet.lack(THERE) == ""
        assert fleet.left_out == {}

    jump(ask())
    assert client.asked == 3


def test_no_actor_is_made_where_it_could_not_be_opened(jump: Jump) -> None:
    async def create() -> None:
        fleet, _ = fleet_of(Asked(LACKING), {"policy": ("nets:Mine",)})
        with pytest.raises(PeerLost, match=f"^{THERE} cannot run standby-2: it has no module nets$"):
            await fleet.create(Program, "standby-2", THERE)

    jump(create())


def test_nobody_is_asked_for_nothing_or_for_what_is_known(jump: Jump) -> None:
    client = Asked()

    async def ask() -> None:
        nothing, _ = fleet_of(client, {"workload": (), "policy": ()})
        trusting, _ = fleet_of(client, {"model": ("nets:Net",)})
        trusting.trust([THERE])
        assert await nothing.lack(THERE) == await trusting.lack(THERE) == ""

    jump(ask())
    assert client.asked == 0


def test_who_does_not_answer_is_left_out_after_a_while(jump: Jump) -> None:
    async def ask() -> tuple[str, float]:
        fleet, _ = fleet_of(Asked(asyncio.sleep(10_000)), {"model": ("nets:Net",)})
        return await fleet.lack(THERE), asyncio.get_running_loop().time()

    said, at = jump(ask())
    assert said == f"did not say whether it can import nets (no answer within {LATE_ASK_LIMIT_S:g} s)"
    assert at == pytest.approx(LATE_ASK_LIMIT_S)
