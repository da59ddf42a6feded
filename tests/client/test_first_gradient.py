"""A Dask worker at which no first gradient can be tried: which wait was in vain, and what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.client.starting.first_gradient import try_on
from psplatform.errors import ClusterError
from psplatform.runtime.timeouts import TIMEOUTS

SAID = r"^no first gradient could be tried: {address} {why}; see whether that Dask worker is busy or stopped, and start"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psplatform.runtime.pools.fleet.TIMEOUTS", replace(TIMEOUTS, create_s=0.05))
    monkeypatch.setattr("psplatform.client.starting.first_gradient._ANSWER_S", 0.05)
    monkeypatch.setattr("psplatform.client.starting.first_gradient.TRIAL_LIMIT_S", 0.05)
    monkeypatch.setattr("psplatform.runtime.pools.deaths.TIMEOUTS", replace(TIMEOUTS, death_s=0.05))


@pytest.fixture
def address() -> Iterator[str]:
    """Return an address at which a process listens and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        yield f"tcp://127.0.0.1:{one.getsockname()[1]}"


class Busy:
    """Stands for a client whose Dask worker makes actors if `makes`, and whose actors answer the calls of `answers`."""

    def __init__(self, *, makes: bool, answers: tuple[str, ...] = ()) -> None:
        self.makes, self.answers, self.scheduler = makes, answers, self

    async def identity(self, n_workers: int) -> dict[str, Any]:
        return {"workers": {}}

    def submit(self, *arguments: Any, **options: Any) -> Any:
        async def exception() -> None:
            await asyncio.sleep(0 if self.makes else 3600)

        return SimpleNamespace(exception=exception, release=lambda: None)

    def rpc(self, address: str) -> Any:
        return self

    async def actor_execute(self, *, function: str, **call: Any) -> Any:
        await asyncio.sleep(0 if function in self.answers else 3600)
        return {"status": "OK", "result": None}


@pytest.fixture
def attempt(address: str) -> Callable[[Busy], None]:
    prepared = SimpleNamespace(run="run", pickled=b"", initial=b"", job=SimpleNamespace(optimizer=None), settings={})

    def begin(client: Any) -> None:
        asyncio.run(try_on(client, cast(Any, prepared), address))

    return begin


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (Busy(makes=False), r"made no trial within 0\.05 s"),
        (Busy(makes=True), r"did not answer alive within 0\.05 s"),
    ],
    ids=["the actor is not made", "the actor does not answer"],
)
def test_a_worker_too_busy_for_a_trial_is_named_with_what_it_did_not_do(
    attempt: Callable[[Busy], None], address: str, client: Busy, why: str
) -> None:
    with pytest.raises(ClusterError, match=SAID.format(address=address, why=why)) as caught:
        attempt(client)
    assert caught.value.peer == address


def test_a_gradient_that_takes_too_long_asks_for_a_smaller_model(attempt: Callable[[Busy], None], address: str) -> None:
    said = rf"the Dask worker {address} tried a first gradient and did not answer within 0\.05 s; take a smaller model"
    with pytest.raises(ClusterError, match=said):
        attempt(Busy(makes=True, answers=("alive",)))
