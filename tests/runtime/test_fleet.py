"""Opening actors: what is waited for, and for how long; and where none is made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.errors import ClusterError
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.pools import fleet as module
from psplatform.runtime.pools.deaths import Death
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.references import Lack
from psplatform.runtime.timeouts import TIMEOUTS

Network = Callable[..., Any]
Jump = Callable[[Any], Any]


class Program:
    """Stands for what is opened."""

    term, run = 1, "run"


def opening(network: Any, peer: Peer) -> Any:
    async def open_and_look() -> tuple[Any, float]:
        try:
            found: Any = await Fleet(cast(Any, None), network, cast(Any, Program())).open(peer)
        except PeerLost as error:
            found = error
        return found, asyncio.get_running_loop().time()

    return open_and_look()


def test_no_actor_has_the_name_of_another_whoever_made_that_one() -> None:
    """A coordinator that takes over does not know all names that those before it have used."""
    names = []
    for term in (1, 2, 5):
        fleet = Fleet(cast(Any, None), None, cast(Any, Program()))
        fleet.begin_term(term)
        names += [fleet.next_name(role) for role in ("replica-0", "replica-0", "worker")]
    assert len(set(names)) == len(names)


def test_a_process_that_answers_may_take_its_time(network: Network, peer: Peer, jump: Jump) -> None:
    def answer(method: str, *_: Any) -> Any:
        return asyncio.sleep(TIMEOUTS.open_s - 1, "open") if method == "open" else {}

    assert jump(opening(network(answer), peer)) == ("open", TIMEOUTS.open_s - 1)


def test_a_process_that_falls_silent_is_given_up(network: Network, peer: Peer, jump: Jump) -> None:
    async def slept() -> Any:
        await asyncio.sleep(0 if asyncio.get_running_loop().time() < 20 else 10 * TIMEOUTS.open_s)

    def answer(method: str, *_: Any) -> Any:
        return asyncio.sleep(10 * TIMEOUTS.open_s) if method == "open" else slept()

    found, at = jump(opening(network(answer), peer))
    assert isinstance(found, PeerLost)
    assert str(found) == f"{peer.address} fell silent for {TIMEOUTS.open_silent_s:g} s while it opened {peer.key}"
    assert at == pytest.approx(20 + TIMEOUTS.open_silent_s, abs=3)


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
LIMIT_S = 180.0


def fleet_of(client: Any, references: Any) -> tuple[Fleet, list[str]]:
    said: list[str] = []
    program = SimpleNamespace(term=1, run="run", references=references)
    fleet = Fleet(client, None, cast(Any, program))
    fleet.on_left_out = said.append
    return fleet, said


def test_a_worker_that_lacks_a_module_is_left_out_with_one_note_and_asked_again(jump: Jump) -> None:
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


def test_no_worker_is_asked_for_nothing_or_for_what_is_known(jump: Jump) -> None:
    client = Asked()

    async def ask() -> None:
        nothing, _ = fleet_of(client, {"workload": (), "policy": ()})
        trusting, _ = fleet_of(client, {"model": ("nets:Net",)})
        trusting.trust([THERE])
        assert await nothing.lack(THERE) == await trusting.lack(THERE) == ""

    jump(ask())
    assert client.asked == 0


def test_a_worker_that_does_not_answer_is_left_out_after_a_while(jump: Jump) -> None:
    async def ask() -> tuple[str, float]:
        fleet, _ = fleet_of(Asked(asyncio.sleep(10_000)), {"model": ("nets:Net",)})
        return await fleet.lack(THERE), asyncio.get_running_loop().time()

    said, at = jump(ask())
    assert said == f"did not say whether it can import nets (no answer within {TIMEOUTS.late_import_s:g} s)"
    assert at == pytest.approx(TIMEOUTS.late_import_s)


class Restarting:
    """Stands for a cluster whose Dask worker keeps its address while its nanny starts one process after another."""

    def __init__(self) -> None:
        self.pid, self.there, self.codes = 1, True, {1: 11, 2: 6}
        self.scheduler, self.asked = self, 0

    async def identity(self, n_workers: int = 0) -> Any:
        one = {"status": "running", "host": "127.0.0.1", "resources": {}, "nanny": "tcp://127.0.0.1:2"}
        return {"workers": {THERE: one} if self.there else {}}

    def rpc(self, address: str) -> Any:
        return self

    async def actor_execute(self, **call: Any) -> Any:
        return {"status": "OK", "result": ProcessId("there", self.pid, 0)}

    async def get_logs(self, n: int) -> Any:
        return [("INFO", f"Worker process {pid} was killed by signal {code}") for pid, code in self.codes.items()]

    async def run(self, function: Any, references: Any, *, workers: list[str], on_error: str) -> dict[str, Any]:
        self.asked += 1
        return {workers[0]: ()}


async def met_twice(cluster: Restarting) -> Fleet:
    """Return a fleet that has met an actor in the first process and one in the second."""
    fleet = Fleet(
        cast(Any, cluster),
        cluster.rpc,
        cast(Any, SimpleNamespace(term=1, run="run", references={"model": ("nets:Net",)})),
    )
    assert await fleet.lack(THERE) == ""
    await fleet.meet(Peer(THERE, "a"))
    first = await fleet.death_of(THERE)
    assert first == await fleet.death_of(THERE)
    assert (first.pid, first.code) == (1, -11) if first is not None else False
    cluster.pid = 2
    await fleet.meet(Peer(THERE, "b"))
    return fleet


def test_a_later_process_at_the_same_address_dies_its_own_death(jump: Jump) -> None:
    async def ask() -> None:
        second = await (await met_twice(Restarting())).death_of(THERE)
        assert second is not None
        assert (second.pid, second.code) == (2, -6)

    jump(ask())


def test_a_later_process_at_the_same_address_is_asked_again_what_it_can_import(jump: Jump) -> None:
    async def ask() -> int:
        cluster = Restarting()
        fleet = await met_twice(cluster)
        assert await fleet.lack(THERE) == ""
        return cluster.asked

    assert jump(ask()) == 2


def test_a_process_that_came_back_is_not_taken_for_the_one_before_it_is_met(
    jump: Jump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may die while an actor is made in it; without its process id, its nanny cannot say how it ended."""
    monkeypatch.setattr("psplatform.runtime.pools.deaths.is_dead", lambda _: asyncio.sleep(0, True))

    async def ask() -> tuple[Any, int]:
        cluster = Restarting()
        fleet = await met_twice(cluster)
        for cluster.there in (False, True):
            await fleet.cluster()
        await fleet.lack(THERE)
        return await fleet.death_of(THERE), cluster.asked

    assert jump(ask()) == (Death(THERE, None, has_nanny=True), 2)


@pytest.mark.parametrize("nanny", ["", "tcp://127.0.0.1:2"], ids=["without a nanny", "with a nanny"])
def test_a_run_that_fails_for_want_of_processes_names_ends_that_only_an_output_explains(jump: Jump, nanny: str) -> None:
    """One that a nanny has seen end in good order explains nothing."""

    async def explain() -> Any:
        fleet = Fleet(cast(Any, Restarting()), None, cast(Any, Program()))
        fleet._deaths[THERE, 5] = Death(THERE, 5, has_nanny=bool(nanny))
        return await fleet.explain(ClusterError("no worker is left; start some"), [])

    named = "" if nanny else f"{THERE} (process 5) ended; "
    assert str(jump(explain())) == f"{named}no worker is left; start some"


def test_actors_are_let_go_of_although_the_scheduler_has_stopped(
    network: Network, jump: Jump, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a run would not end as long as it stands still."""
    closed: list[str] = []

    async def wait_for_ever(client: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "cluster_of", wait_for_ever)

    async def end() -> list[Peer]:
        client: Any = SimpleNamespace(scheduler_comm=None)
        fleet = Fleet(client, network(closed.append), cast(Any, Program()))
        for key in ("server-0", "worker-1"):
            fleet._held[Peer(THERE, key)] = cast(Any, SimpleNamespace(done=lambda: True))
        await fleet.close_all()
        return list(fleet._held)

    assert jump(asyncio.wait_for(end(), LIMIT_S)) == []
    assert closed == ["close", "close"]
