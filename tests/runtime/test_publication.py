"""What a coordinator publishes of itself, and what it shows a scheduler that speaks TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from distributed import Security

from psplatform.runtime.comms import publication
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.publication import Card, _as_client

Jump = Callable[[Any], Any]


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
