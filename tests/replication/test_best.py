"""The model of the best version: whole or the one before, and never worse than that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr

from psplatform.core.quality import Watch
from psplatform.errors import StoreError
from psplatform.replication.stores import models
from psplatform.replication.stores.models import load_model, save_best, save_model
from psplatform.replication.stores.store import create_run

LAST = {"w": np.zeros(2, np.float32), "deep/er.weight": np.ones((2, 2))}


def best(place: str, value: float, *, version: int, metric: str = "loss", lower: bool = True) -> bool:
    arrays = {"w": np.full(2, value, np.float32), "deep/er.weight": np.full((2, 2), value)}
    return save_best(
        place, arrays, version=version, watch=Watch(metric, frozenset({metric} if lower else ())), value=value
    )


@pytest.fixture
def place(tmp_path: Any) -> str:
    store = str(tmp_path / "run.zarr")
    create_run(store, {"run": "r"})
    return store


def test_the_best_is_beside_the_last(place: str) -> None:
    assert best(place, 0.5, version=3)
    save_model(place, LAST, version=9)
    arrays, version = load_model(place, best=True)
    assert (version, arrays["w"].tolist(), sorted(arrays)) == (3, [0.5, 0.5], ["deep/er.weight", "w"])
    assert load_model(place)[1] == 9


@pytest.mark.parametrize(("lower", "better", "worse"), [(True, 0.4, 0.6), (False, 0.6, 0.4)])
def test_only_a_better_one_takes_its_place(place: str, lower: bool, better: float, worse: float) -> None:
    """A run that is recovered from before its best version does not lose that."""
    assert best(place, 0.5, version=3, lower=lower)
    assert not best(place, worse, version=4, lower=lower)
    assert not best(place, 0.5, version=4, lower=lower)
    assert load_model(place, best=True)[1] == 3
    assert best(place, better, version=2, lower=lower)
    assert load_model(place, best=True)[1] == 2
    assert len(list(zarr.open_group(place, mode="r")["best"].groups())) == 1  # type: ignore[union-attr]


def test_values_of_another_metric_are_not_compared(place: str) -> None:
    assert best(place, 0.5, version=3)
    assert best(place, 0.9, version=4, metric="F1 macro/weighted", lower=False)
    assert load_model(place, best=True)[1] == 4


@pytest.mark.parametrize("written", [0, 1, 2])
def test_one_that_was_not_written_to_its_end_leaves_the_one_before(
    place: str, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full after so many arrays."""
    assert best(place, 0.5, version=3)
    create, left = zarr.Group.create_array, [None] * written

    def fill_up(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    def write(self: Any, *given: Any, **named: Any) -> Any:
        return create(self, *given, **named) if left and not left.pop() else fill_up()

    monkeypatch.setattr(zarr.Group, "create_array", write)
    monkeypatch.setattr(models, "_point_to", fill_up)
    with pytest.raises(StoreError, match="No space left|full"):
        best(place, 0.1, version=4)
    monkeypatch.undo()
    assert load_model(place, best=True)[1] == 3
    assert best(place, 0.1, version=4), "the next attempt is not in the way of the last"


def test_a_store_without_one_says_how_to_have_one(place: str) -> None:
    save_model(place, LAST, version=1)
    with pytest.raises(StoreError, match="no model of a best version: its job has no keep_best"):
        load_model(place, best=True)


def test_the_same_version_again_is_the_best_that_is_there(place: str) -> None:
    """A coordinator that took over asks for an evaluation again."""
    assert best(place, 0.5, version=3)
    assert best(place, 0.5, version=3)
    assert not best(place, 0.5, version=4)


def test_a_better_one_of_the_same_version_leaves_the_one_before_until_it_is_whole(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovered run evaluates at the same versions again."""
    assert best(place, 0.5, version=3)
    monkeypatch.setattr(zarr.Group, "create_array", full)
    with pytest.raises(StoreError):
        best(place, 0.1, version=3)
    monkeypatch.undo()
    assert load_model(place, best=True)[0]["w"].tolist() == [0.5, 0.5]
    assert best(place, 0.1, version=3)
    assert load_model(place, best=True)[0]["w"].tolist() == pytest.approx([0.1, 0.1])


def full(*given: Any, **named: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_one_that_took_its_place_meanwhile_stays(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluator that was stopped goes on writing when it wakes, after another has written a better version."""
    create, later = zarr.Group.create_array, [0.2]

    def interrupted(self: Any, *given: Any, **named: Any) -> Any:
        if later:
            assert best(place, later.pop(), version=20)
        return create(self, *given, **named)

    monkeypatch.setattr(zarr.Group, "create_array", interrupted)
    assert not best(place, 0.3, version=10)
    arrays, version = load_model(place, best=True)
    assert (version, sorted(arrays)) == (20, ["deep/er.weight", "w"])
    assert len(list(zarr.open_group(place, mode="r")["best"].groups())) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("times", [1, 9])
def test_a_model_that_is_replaced_while_it_is_read_is_read_again(
    place: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed arrays would be read as zeros."""
    assert best(place, 99.0, version=1)
    read, left = models._read_arrays, list(range(times))

    def interrupted(group: Any) -> Any:
        found = dict(group.members())  # listed, and then removed
        if left:
            best(place, 1.0 + left.pop(), version=2)
        return read(group) if found else None

    monkeypatch.setattr(models, "_read_arrays", interrupted)
    if times > 5:
        with pytest.raises(StoreError, match="was replaced while it was read; read it again"):
            load_model(place, best=True)
        return
    arrays, version = load_model(place, best=True)
    assert (version, arrays["w"].tolist()) == (2, [1.0, 1.0])
