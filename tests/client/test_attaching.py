"""How a store that a driver cannot get at is told by whoever only looks for a run in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn, cast

import fsspec
import pytest
from distributed import Client
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from psplatform.client.runs import attaching
from psplatform.client.runs.attaching import attach
from psplatform.client.starting.preflight import see_store
from psplatform.errors import StoreError
from psplatform.replication.stores.store import create_run

STORE = "locked://bucket/run.zarr"


class NoCredentials(Exception):
    """Of the driver's own kind, as botocore's are."""


class Locked(MemoryFileSystem):
    """A file system that lets nobody in."""

    protocol = "locked"
    asked: ClassVar[list[str]] = []

    def info(self, path: str, **options: Any) -> NoReturn:
        self.asked.append(path)
        raise NoCredentials("Unable to locate credentials")

    exists = isdir = ls = cat_file = pipe_file = info


@pytest.fixture(autouse=True)
def locked() -> Iterator[None]:
    fsspec.register_implementation("locked", Locked)
    Locked.asked.clear()
    yield
    del _registry["locked"]


def test_a_store_out_of_reach_is_told_to_whoever_attaches() -> None:
    """With a client as well, although it could be a run's id."""
    for client in (None, cast(Client, object())):
        with pytest.raises(StoreError, match=r"cannot read .*locked://bucket/run.zarr \(Unable to .*its credentials"):
            attach(STORE, client)


def test_a_store_out_of_reach_is_asked_for_one_object() -> None:
    """Requests beside the one that fails would end after it, in words that nobody can make sense of."""
    with pytest.raises(StoreError):
        attach(STORE)
    assert len(Locked.asked) <= 2, "its content, and its length, for an object without any"
    (path,) = set(Locked.asked)
    assert path.endswith("run.zarr/zarr.json")


def test_a_process_that_cannot_get_at_the_store_says_why() -> None:
    assert see_store(STORE) == "cannot write to it (Unable to locate credentials)"
    assert "nothing here can open the store carrier-pigeon://coop/run.zarr" in see_store(
        "carrier-pigeon://coop/run.zarr"
    )


@pytest.mark.parametrize("error", [OSError("the scheduler is gone"), KeyboardInterrupt("Ctrl-C")])
@pytest.mark.parametrize("own", [True, False])
def test_a_client_that_was_made_to_attach_is_closed_if_its_scheduler_is_lost_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool, error: BaseException
) -> None:
    """It would try to reconnect for ever; one that was given is left as it is.  Closing it may fail as well."""
    store, closed = str(tmp_path / "run.zarr"), list[str]()
    create_run(store, {"run": "digits-a"})

    def lose(*given: object, **options: object) -> NoReturn:
        raise error

    def close() -> NoReturn:
        closed.append("client")
        raise TimeoutError("no answer")

    client: Any = SimpleNamespace(get_metadata=lose, close=close)
    monkeypatch.setattr(attaching.records, "known", lambda run, store: object())
    monkeypatch.setattr(attaching, "connect_to", lambda record: client)
    monkeypatch.setattr(attaching, "usable", lambda given: given)
    with pytest.raises(type(error)) as caught:
        attach(store, None if own else client)
    assert caught.value is error
    assert closed == (["client"] if own else [])
