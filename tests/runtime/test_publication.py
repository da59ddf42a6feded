"""What a coordinator publishes of itself, and what it shows a scheduler that speaks TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from distributed import Security

from psplatform.runtime.comms import publication
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.publication import Card, _as_client

Jump = Callable[[Any], Any]
LIMIT_S = 180.0


def test_a_process_with_a_workers_certificate_shows_that() -> None:
    given = Security(tls_worker_cert="worker.pem", tls_worker_key="worker-key.pem")
    shown = _as_client(given)
    assert (shown.tls_client_cert, shown.tls_client_key) == ("worker.pem", "worker-key.pem")
    assert given.tls_client_cert is None, "the worker's own stays as it is"


def test_a_clients_certificate_is_shown_where_there_is_one() -> None:
    own = {"tls_client_cert": "client.pem", "tls_client_key": "client-key.pem"}
    shown = _as_client(Security(tls_worker_cert="worker.pem", tls_worker_key="worker-key.pem", **own))
    assert (shown.tls_client_cert, shown.tls_client_key) == ("client.pem", "client-key.pem")


@pytest.mark.parametrize("standby", [True, False])
def test_programs_find_where_the_coordinator_is_and_whether_another_would_take_over(
    jump: Jump, peer: Peer, monkeypatch: pytest.MonkeyPatch, standby: bool
) -> None:
    shown: list[dict[str, Any]] = []

    async def keep(client: Any, function: Any, **arguments: Any) -> bool:
        shown.append(arguments)
        return True

    monkeypatch.setattr(publication, "_on_scheduler", keep)
    jump(Card(cast(Any, None), "run", "runs/my.zarr", peer).show(2, standby=standby))
    assert [one["run"] for one in shown] == ["run"]
    card = shown[0]["card"]
    assert (card["address"], card["key"], card["standby"], card["term"]) == (peer.address, peer.key, standby, 2)


@pytest.mark.parametrize("has_extension", [True, False])
def test_a_scheduler_that_has_stopped_is_not_waited_for(jump: Jump, peer: Peer, has_extension: bool) -> None:
    """Else a run would not end as long as it stands still."""

    async def wait_for_ever(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    async def raise_at_once(*_: Any, **__: Any) -> None:
        raise ImportError("another version")

    async def end() -> None:
        client: Any = SimpleNamespace(
            scheduler="there",
            run_on_scheduler=wait_for_ever if has_extension else raise_at_once,
            unpublish_dataset=wait_for_ever,
            set_metadata=wait_for_ever,
        )
        card = Card(client, "run", "runs/my.zarr", peer)
        await card.show(2, standby=False)
        await card.retract()
        await card.withdraw()

    jump(asyncio.wait_for(end(), LIMIT_S))
