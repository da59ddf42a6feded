"""Only its owner may read what a store says of its run: it may name a scheduler."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zarr

from psplatform.errors import StoreError
from psplatform.replication.stores.models import save_model
from psplatform.replication.stores.store import create_run, describe_run, reopen_run, update_run

DESCRIPTION: dict[str, Any] = {"run": "digits-bsp-1a2b3c", "scheduler": "tcp://10.0.0.1:8786", "numbers": [1.5, None]}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "run.zarr"


@pytest.fixture(autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(getattr(request, "param", 0o022))
    yield
    os.umask(before)


def mode_of(store: Path) -> int:
    return stat.S_IMODE((store / "zarr.json").stat().st_mode)


@pytest.mark.parametrize(
    ("umask", "mode"), [(0o022, 0o600), (0o077, 0o600), (0o000, 0o660), (0o002, 0o660)], indirect=["umask"]
)
def test_only_its_owner_reads_it_and_the_group_where_that_may_write(mode: int, store: Path) -> None:
    """From the beginning, and after every change."""
    create_run(str(store), DESCRIPTION)
    assert mode_of(store) == mode
    update_run(str(store), outcome="stopped")
    assert mode_of(store) == mode
    reopen_run(str(store), DESCRIPTION)
    save_model(str(store), {}, version=3)
    assert mode_of(store) == mode
    assert store.stat().st_mode == store.parent.stat().st_mode, "the rest is as the user has it"


def test_permissions_that_the_user_gave_it_are_kept(store: Path) -> None:
    """Those of stores of earlier versions, too."""
    create_run(str(store), DESCRIPTION)
    (store / "zarr.json").chmod(0o644)
    update_run(str(store), outcome="stopped")
    assert mode_of(store) == 0o644


def test_plain_zarr_reads_it_and_what_others_have_added_stays(store: Path) -> None:
    create_run(str(store), DESCRIPTION)
    zarr.open_group(str(store), mode="r+").attrs["notes"] = {"by": "somebody"}
    update_run(str(store), outcome="größer")
    group = zarr.open_group(str(store), mode="r")
    assert group.attrs["notes"] == {"by": "somebody"}
    assert group.attrs["psplatform"] == {"format": 1, **DESCRIPTION, "outcome": "größer"}


def test_one_that_cannot_be_written_is_the_old_one(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_run(str(store), DESCRIPTION)

    def full(path: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", full)
        with pytest.raises(StoreError, match="make room there"):
            update_run(str(store), outcome="stopped")
    assert "outcome" not in describe_run(str(store))
    assert [one.name for one in store.iterdir()] == ["zarr.json"]
