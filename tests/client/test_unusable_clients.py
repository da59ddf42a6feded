"""A client that cannot be used is refused by name, before anything else is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, Scheduler

import psplatform as ps
from psplatform.client.runs.attaching import runs_on
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.store import create_run

CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "train": lambda client, _: ps.train(ps.Job(workload="digits"), client),
    "recover": lambda client, folder: ps.recover(str(folder / "run.zarr"), client),
    "attach by id": lambda client, _: ps.attach("digits-bsp-1a2b3c", client),
    "attach by store": lambda client, folder: ps.attach(str(folder / "run.zarr"), client),
    "runs_on": lambda client, _: runs_on(client),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    create_run(str(tmp_path / "run.zarr"), {"run": "digits-bsp-1a2b3c"})
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", CALLS)
def test_an_asynchronous_client_is_refused_with_what_to_write(name: str, folder: Path) -> None:
    async def with_client() -> None:
        async with (
            Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            CALLS[name](client, folder)

    with pytest.raises(
        ConfigurationError, match=r"client is asynchronous.*Client\(address\).*asyncio\.to_thread"
    ) as caught:
        asyncio.run(with_client())
    assert caught.value.field == "client"
    assert [path.name for path in folder.iterdir()] == ["run.zarr"]


OTHERS = {
    "an address": (
        "tcp://host:8786",
        r"must be a distributed\.Client, not 'tcp://host:8786'; write Client\(\"tcp://host",
    ),
    "a cluster": (
        SimpleNamespace(scheduler_address="tcp://host:8786"),
        r"not namespace.*; write Client\(\"tcp://host:8786\"\)",
    ),
    "a number": (3, r"must be a distributed\.Client, not 3; make one with Client\(address\)"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_client_is_refused_with_what_to_write(name: str, kind: str, folder: Path) -> None:
    client, sentence = OTHERS[kind]
    with pytest.raises(ConfigurationError, match=sentence):
        CALLS[name](client, folder)
