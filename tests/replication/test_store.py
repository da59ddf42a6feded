"""A run's store: one run per place, readable without psplatform."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import zarr

from psplatform.errors import ConfigurationError, StoreError
from psplatform.replication.stores.models import load_model, save_model
from psplatform.replication.stores.store import create_run, describe_run, holds_parts, update_run

DESCRIPTION = {"run": "digits-bsp-1a2b3c", "workers": 2, "policy_parameters": {"k": 1}}
ARRAYS: dict[str, Any] = {
    "0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "1.running_mean": np.linspace(0, 1, 3, dtype=np.float64),
    "1.num_batches_tracked": np.array(2**40 + 1, dtype=np.int64),
    "head": np.zeros((0, 4), dtype=np.float32),
    "branches.left/0.weight": np.ones((2, 2), dtype=np.float32),
    "branches./.bias": np.ones(1, dtype=np.float32),
    "__größe 100%": np.full(3, 7.0, dtype=np.float32),
}

LOST = r"is the store of a run, but its zarr\.json is missing or damaged; restore that file from a copy"


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every kind of place a run may persist in."""
    return str(tmp_path / "deep" / "run.zarr") if request.param == "folder" else f"memory://{uuid4().hex}/run.zarr"


def test_a_store_says_which_run_it_holds(store: str) -> None:
    create_run(store, DESCRIPTION)
    described = describe_run(store)
    assert {name: described[name] for name in DESCRIPTION} == DESCRIPTION


def test_a_description_can_be_changed_in_part(store: str) -> None:
    create_run(store, DESCRIPTION)
    update_run(store, outcome="stopped")
    assert describe_run(store)["outcome"] == "stopped"
    assert describe_run(store)["workers"] == 2


def test_a_place_that_holds_a_run_is_refused(store: str) -> None:
    """With the run's id, so that the user knows what is in the way; the run stays as it is."""
    create_run(store, DESCRIPTION)
    with pytest.raises(StoreError, match="already holds the run digits-bsp-1a2b3c; choose another store") as caught:
        create_run(store, {"run": "other"})
    assert caught.value.store == store
    assert describe_run(store)["run"] == "digits-bsp-1a2b3c"


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """Nobody's files are mixed with a run's."""
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="already holds something else"):
        create_run(str(tmp_path), DESCRIPTION)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    create_run(str(tmp_path), DESCRIPTION)
    assert describe_run(str(tmp_path))["run"] == "digits-bsp-1a2b3c"


def test_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    path.write_text("x")
    with pytest.raises(StoreError, match="is a file; choose another store"):
        create_run(str(path), DESCRIPTION)
    assert path.read_text() == "x"


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="choose a place that every process of the run can write to"):
        create_run(str(tmp_path / "file" / "run.zarr"), DESCRIPTION)


@pytest.mark.parametrize("url", ["carrier-pigeon://coop/run.zarr", "s3x://bucket/run"])
def test_an_unknown_kind_of_url_is_refused(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        create_run(url, DESCRIPTION)
    assert caught.value.store == url
    with pytest.raises(StoreError):
        describe_run(url)


def test_a_store_that_is_not_there_is_said_to_be_missing(store: str) -> None:
    with pytest.raises(StoreError, match="there is no run in .*; check the path"):
        describe_run(store)


def test_a_file_holds_no_run(tmp_path: Path) -> None:
    """Whatever the user points at, one sentence comes back."""
    path = tmp_path / "notes.txt"
    path.write_text("x")
    with pytest.raises(StoreError, match=r"notes\.txt"):
        describe_run(str(path))


def test_a_foreign_group_holds_no_run(store: str) -> None:
    zarr.open_group(store, mode="w")
    with pytest.raises(StoreError, match="is a Zarr group, but holds no run of psplatform"):
        describe_run(store)


def test_an_array_holds_no_run(tmp_path: Path) -> None:
    path = str(tmp_path / "array.zarr")
    zarr.create_array(path, shape=(3,), dtype="f4")
    with pytest.raises(StoreError):
        describe_run(path)


def test_a_full_disk_asks_for_room(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another place is no remedy for a run that has its place."""

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    create_run(store, DESCRIPTION)
    monkeypatch.setattr("zarr.Group.create_array", full)
    with pytest.raises(StoreError, match=r"cannot write the model to .* \(.*No space left.*\); make room there"):
        save_model(store, {"w": np.zeros(2)}, version=1)


def test_a_newer_format_asks_for_an_update(store: str) -> None:
    """An old psplatform does not guess at what a newer one wrote."""
    create_run(store, DESCRIPTION)
    root = zarr.open_group(store, mode="r+")
    root.attrs["psplatform"] = {**DESCRIPTION, "format": 2}
    with pytest.raises(StoreError, match="has format 2; this psplatform reads format 1, update it"):
        describe_run(store)


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    store = tmp_path / "run.zarr"
    create_run(str(store), DESCRIPTION)
    (store / "zarr.json").write_text('{"zarr_format": 3, "node_ty')
    with pytest.raises(
        StoreError, match=r"cannot read the zarr.json of .*run\.zarr .*restore it from a copy"
    ) as caught:
        describe_run(str(store))
    assert "write" not in str(caught.value)


@pytest.mark.parametrize("part", ["log/00000001-00000002.msgpack", "checkpoints/00100001"])
@pytest.mark.parametrize("call", [describe_run, load_model, update_run])
def test_a_run_that_nothing_describes_any_more_is_named(tmp_path: Path, part: str, call: Callable[[str], Any]) -> None:
    store = tmp_path / "run.zarr"
    create_run(str(store), DESCRIPTION)
    (store / part).mkdir(parents=True)
    (store / "zarr.json").unlink()
    with pytest.raises(StoreError, match=LOST):
        call(str(store))


def test_a_run_whose_description_is_empty_is_named(tmp_path: Path) -> None:
    create_run(str(tmp_path), DESCRIPTION)
    segment = tmp_path / "log" / "00000001-00000001.msgpack"
    segment.parent.mkdir()
    segment.touch()
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(StoreError, match=LOST):
        describe_run(str(tmp_path))


def test_a_folder_of_stores_is_no_damaged_store(tmp_path: Path) -> None:
    """Even where a run is kept under the name of a part."""
    create_run(str(tmp_path / "checkpoints"), DESCRIPTION)
    (tmp_path / "checkpoints" / "checkpoints" / "00000001").mkdir(parents=True)
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "training.txt").touch()
    assert not holds_parts(str(tmp_path))
    assert holds_parts(str(tmp_path / "checkpoints"))
    with pytest.raises(StoreError, match="there is no run in"):
        describe_run(str(tmp_path))


@pytest.mark.parametrize("content", ["[]", "{}", '{"zarr_format": 3}', '{"zarr_format": 9, "node_type": "group"}', "7"])
def test_foreign_metadata_is_named(tmp_path: Path, content: str) -> None:
    """Valid JSON alone does not make a store."""
    store = tmp_path / "run.zarr"
    store.mkdir()
    (store / "zarr.json").write_text(content)
    with pytest.raises(StoreError, match=r"run\.zarr"):
        describe_run(str(store))


def test_every_store_error_is_one_of_configuration(tmp_path: Path) -> None:
    """So the command line ends with exit code 2 and names the field."""
    with pytest.raises(ConfigurationError) as caught:
        describe_run(str(tmp_path / "nothing"))
    assert caught.value.field == "store"


def test_a_model_comes_back_as_it_was_saved(store: str) -> None:
    """Names with dots, scalars and empty arrays included, bit for bit."""
    create_run(store, DESCRIPTION)
    save_model(store, ARRAYS, version=41)
    arrays, version = load_model(store)
    assert version == 41
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        assert arrays[name].tobytes() == array.tobytes()


def test_a_model_is_flat_whatever_its_tensors_are_called(store: str) -> None:
    """With the name in the attributes of its array, as in a checkpoint."""
    create_run(store, DESCRIPTION)
    save_model(store, ARRAYS, version=1)
    model = zarr.open_group(store, mode="r", path="model")
    assert {str(array.attrs["psplatform"]["name"]) for _, array in model.arrays()} == ARRAYS.keys()  # type: ignore[index,call-overload]
    assert list(model.groups()) == []


def test_a_model_from_before_names_were_encoded_is_read(store: str) -> None:
    """Where a slash made a group, and no array told its name."""
    create_run(store, DESCRIPTION)
    group = zarr.open_group(store, mode="r+").create_group("model")
    for name in ("left/0.weight", "left/0.bias", "100%25.weight"):
        group.create_array(name, data=np.ones(2, np.float32))
    group.attrs["version"] = 3
    arrays, version = load_model(store)
    assert (sorted(arrays), version) == (["100%25.weight", "left/0.bias", "left/0.weight"], 3)


def test_a_model_in_any_memory_order_can_be_saved(store: str) -> None:
    """A transposed view is stored as what it shows."""
    create_run(store, DESCRIPTION)
    save_model(store, {"w": ARRAYS["0.weight"].T}, version=1)
    assert load_model(store)[0]["w"].tolist() == ARRAYS["0.weight"].T.tolist()


def test_a_model_takes_the_place_of_the_one_before(store: str) -> None:
    """Nothing of the old one remains, not even a tensor that the new one does not have."""
    create_run(store, DESCRIPTION)
    save_model(store, ARRAYS, version=1)
    save_model(store, {"w": np.ones(2, np.float32)}, version=2)
    arrays, version = load_model(store)
    assert (sorted(arrays), version) == (["w"], 2)


def test_a_model_that_was_not_saved_to_its_end_is_none(store: str) -> None:
    """The version is written last: what has none is not whole."""
    create_run(store, DESCRIPTION)
    zarr.open_group(store, mode="r+").create_group("model").create_array("w", data=np.ones(2, np.float32))
    with pytest.raises(StoreError, match="holds no model yet"):
        load_model(store)


def test_a_run_without_a_model_says_so(store: str) -> None:
    create_run(store, DESCRIPTION)
    with pytest.raises(StoreError, match="holds no model yet; its run has not ended well"):
        load_model(store)


def test_a_model_of_a_store_that_is_not_there_says_so(store: str) -> None:
    with pytest.raises(StoreError):
        load_model(store)


def test_a_store_is_readable_with_plain_zarr(store: str) -> None:
    """A group of arrays by parameter name, with the version as attribute."""
    create_run(store, DESCRIPTION)
    save_model(store, ARRAYS, version=41)
    model = zarr.open_group(store, mode="r", path="model")
    assert model.attrs["version"] == 41
    weight = model["0.weight"]
    assert isinstance(weight, zarr.Array)
    assert np.asarray(weight[1:, :2]).tolist() == [[4.0, 5.0], [8.0, 9.0]]
