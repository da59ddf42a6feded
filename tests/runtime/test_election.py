"""Numbers on a real scheduler: granted once, and to nobody any more when the run is over."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import Client, Scheduler

from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.hosting import dataset_name
from psplatform.runtime.comms.publication import Card, withdraw
from psplatform.runtime.pools.election import claim, consult, offer

RUN, OTHER = "digits-bsp-1a2b3c", "digits-bsp-1a2b3c4"
Body = Callable[[Client, Scheduler], Awaitable[None]]


def program(run: str, term: int = 1) -> Any:
    return SimpleNamespace(run=run, term=term)


@pytest.fixture
def on_scheduler() -> Callable[[Body], None]:
    """Run a coroutine function with a client of a scheduler of its own, and the scheduler."""

    async def connected(body: Body) -> None:
        async with (
            Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            await body(client, scheduler)

    return lambda body: asyncio.run(connected(body))


def traces(scheduler: Any) -> list[str]:
    """Return what a scheduler holds under the run's name, wherever that is."""
    semaphores = scheduler.extensions["semaphores"]
    places = [semaphores.max_leases, semaphores.leases, semaphores.lease_timeouts, semaphores.events]
    places += [*semaphores.metrics.values(), scheduler.task_metadata, scheduler.clients, scheduler.tasks]
    places += [scheduler.extensions["publish"].datasets]
    return [str(name) for place in places for name in place if RUN in str(name)]


def test_a_number_is_granted_once_and_to_nobody_before_it_is_offered(on_scheduler: Callable[[Body], None]) -> None:
    """Asked again, the one who has it hears the same."""

    async def body(client: Client, scheduler: Scheduler) -> None:
        assert not await claim(client, program(RUN), 1, 2, "standby-2")
        await offer(client, program(RUN), 1, 2)
        await offer(client, program(RUN), 1, 2)
        assert await claim(client, program(RUN), 1, 2, "standby-2")
        assert not await claim(client, program(RUN), 1, 2, "coordinator-1")
        assert await claim(client, program(RUN), 1, 2, "standby-2")

    on_scheduler(body)


@pytest.mark.parametrize("terms", [(1,), (1, 7)])
def test_whoever_wakes_up_after_the_end_is_granted_nothing(
    on_scheduler: Callable[[Body], None], terms: tuple[int, ...]
) -> None:
    """Neither what was claimed before, nor what never was; and the scheduler keeps nothing of the run."""

    async def body(client: Client, scheduler: Scheduler) -> None:
        card = Card(client, RUN, "runs/my.zarr", Peer("tcp://10.0.0.1:1", "coordinator"))
        for term in terms:
            await card.show(term, standby=True)
            for number in (term + 1, term + 2):
                await offer(client, program(RUN, term), term, number)
            await claim(client, program(RUN, term), term, term + 1, "claimant")
        await offer(client, program(OTHER), 1, 2)
        assert traces(scheduler)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await card.withdraw()
        assert [name for name in traces(scheduler) if OTHER not in name] == []
        for term in terms:
            for number in (term + 1, term + 2):
                assert not await claim(client, program(RUN, term), term, number, "claimant")
        assert [name for name in traces(scheduler) if OTHER not in name] == [], "asking leaves nothing either"
        assert await claim(client, program(OTHER), 1, 2, "standby-2"), "another run's numbers stay"

    on_scheduler(body)


def test_what_was_published_is_forgotten_with_the_name_it_was_published_under(
    on_scheduler: Callable[[Body], None],
) -> None:
    async def body(client: Client, scheduler: Scheduler) -> None:
        await client.publish_dataset("what", name=dataset_name(RUN))
        assert len(traces(scheduler)) == 2
        await withdraw(client, RUN)
        assert traces(scheduler) == []
        await withdraw(client, RUN)

    on_scheduler(body)


def test_a_coordinator_that_was_replaced_does_not_hide_its_successor(on_scheduler: Callable[[Body], None]) -> None:
    """It may have been stopped, and wake up in the midst of saying where it is."""

    async def body(client: Client, scheduler: Scheduler) -> None:
        before = Card(client, RUN, "runs/my.zarr", Peer("tcp://10.0.0.1:1", "coordinator"))
        after = Card(client, RUN, "runs/my.zarr", Peer("tcp://10.0.0.1:2", "standby-2"))
        await before.show(1, standby=True)
        await after.show(2, standby=False)
        await before.show(1, standby=False)
        found = await client.get_metadata([dataset_name(RUN)])
        assert (found["key"], found["term"], found["standby"]) == ("standby-2", 2, False)
        await before.retract()
        assert await client.get_metadata([dataset_name(RUN)], default=None) == found
        await after.withdraw()
        await before.show(1, standby=False)
        assert traces(scheduler) == [], "one that has retracted says nothing more"

    on_scheduler(body)


def test_one_that_wakes_up_after_the_end_takes_back_what_it_has_said(on_scheduler: Callable[[Body], None]) -> None:
    async def body(client: Client, scheduler: Scheduler) -> None:
        late = Card(client, RUN, "runs/my.zarr", Peer("tcp://10.0.0.1:1", "coordinator"))
        await late.show(1, standby=False)
        await late.retract()
        assert traces(scheduler) == []

    on_scheduler(body)


@pytest.mark.parametrize("missing", [ImportError("no module named psplatform"), AttributeError("show_card")])
def test_a_scheduler_that_lacks_our_functions_keeps_the_card_all_the_same(
    on_scheduler: Callable[[Body], None], monkeypatch: pytest.MonkeyPatch, missing: Exception
) -> None:
    """One of an older psplatform: what it keeps of a run is then as little as it can be told to."""

    async def body(client: Client, scheduler: Scheduler) -> None:
        async def refuse(*anything: Any, **named: Any) -> None:
            raise missing

        monkeypatch.setattr(client, "run_on_scheduler", refuse)
        card = Card(client, RUN, "runs/my.zarr", Peer("tcp://10.0.0.1:1", "coordinator"))
        await card.show(1, standby=False)
        assert (await client.get_metadata([dataset_name(RUN)]))["key"] == "coordinator"
        await card.withdraw()
        assert await client.get_metadata([dataset_name(RUN)]) is None

    on_scheduler(body)


def test_a_coordinator_that_has_taken_over_has_the_numbers_of_terms_before_forgotten(
    on_scheduler: Callable[[Body], None],
) -> None:
    """A run with many failovers leaves no more on its scheduler than one without; none of them is granted any more."""

    async def body(client: Client, scheduler: Scheduler) -> None:
        card = Card(client, RUN, "runs/my.zarr", Peer("tcp://10.0.0.1:2", "standby-3"))
        for run, term, number in [(RUN, 1, 2), (RUN, 1, 3), (RUN, 3, 4), (OTHER, 1, 2)]:
            await offer(client, program(run), term, number)
        assert await claim(client, program(RUN), 1, 3, "standby-3")
        await card.show(3, standby=False)
        known = scheduler.extensions["semaphores"].max_leases
        left = [(RUN, "term-3-4"), (OTHER, "term-1-2")]
        assert sorted(known) == sorted(f"{dataset_name(run)}-{number}" for run, number in left)
        for claimant in ("standby-2", "standby-3", "coordinator-1"):
            assert not await claim(client, program(RUN), 1, 2, claimant)
            assert not await claim(client, program(RUN), 1, 3, claimant)
        assert await claim(client, program(RUN), 3, 4, "coordinator-3")
        await card.show(3, standby=True)
        assert await claim(client, program(RUN), 3, 4, "coordinator-3"), "those of its own term are still known"

    on_scheduler(body)


def test_of_many_at_once_exactly_one_gets_a_number(on_scheduler: Callable[[Body], None]) -> None:
    async def body(client: Client, scheduler: Scheduler) -> None:
        await offer(client, program(RUN), 1, 2)

        async def once(claimant: str) -> bool:
            async with Client(scheduler.address, asynchronous=True, set_as_default=False) as another:
                return await claim(another, program(RUN), 1, 2, claimant)

        granted = await asyncio.gather(*(once(f"claimant-{number}") for number in range(5)))
        assert sorted(granted) == [False] * 4 + [True]

    on_scheduler(body)


def test_two_coordinators_count_apart(on_scheduler: Callable[[Body], None]) -> None:
    """The standbys of one that was replaced have no part in those of its successor, nor a run in one that went on."""

    async def body(client: Client, scheduler: Scheduler) -> None:
        for term, began in ((1, 1), (2, 1), (1, 9)):
            await offer(client, program(RUN, began), term, 3)
            assert await claim(client, program(RUN, began), term, 3, f"coordinator-{term}")

    on_scheduler(body)


def test_a_claim_is_repeated_until_the_scheduler_answers(jump: Callable[[Any], Any]) -> None:
    """Without it no standby can take over, and none has; a client that Dask has given up asks as little."""
    asked: list[str] = []

    class Silent:
        async def semaphore_acquire(self, **_: Any) -> bool:
            asked.append("acquire")
            if len(asked) <= 2:
                raise OSError
            return False

    client: Any = SimpleNamespace(scheduler=Silent())
    assert jump(claim(client, program(RUN), 1, 2, "standby-2")) is False
    assert len(asked) == 3


def test_a_scheduler_that_does_not_answer_is_told_of_once(jump: Callable[[Any], Any]) -> None:
    said: list[float] = []

    class Stopped:
        def __init__(self) -> None:
            self.asked = 0

        async def identity(self, **_: Any) -> dict[str, Any]:
            self.asked += 1
            if self.asked < 3:
                await asyncio.sleep(99)
            return {}

    async def ask() -> float:
        loop = asyncio.get_running_loop()
        await consult(cast(Any, SimpleNamespace(scheduler=Stopped())), lambda: said.append(loop.time()))
        return loop.time()

    answered_at = jump(ask())
    assert len(said) == 1
    assert said[0] < answered_at
