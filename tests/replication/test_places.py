"""Where a store is: local URLs are paths, all others stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from psplatform.replication.stores.places import place_of


@pytest.mark.parametrize(
    ("store", "place"),
    [
        ("file:///scratch/run.zarr", "/scratch/run.zarr"),
        ("file://localhost/scratch/run.zarr", "/scratch/run.zarr"),
        ("file:/scratch/run.zarr", "/scratch/run.zarr"),
        ("local:///scratch/run.zarr", "/scratch/run.zarr"),
        ("file://runs/run.zarr", "runs/run.zarr"),
        ("file:runs/run.zarr", "runs/run.zarr"),
        ("file:///scratch/my%20run%C3%A9%25.zarr", "/scratch/my runé%.zarr"),
        ("file:///scratch/my run.zarr", "/scratch/my run.zarr"),
    ],
)
def test_the_url_of_a_local_place_is_its_path(store: str, place: str) -> None:
    assert place_of(store) == place


def test_home_is_what_it_is_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert place_of("~/run.zarr") == place_of("file://~/run.zarr") == "/home/ada/run.zarr"
    assert place_of("~nobody-of-that-name/run.zarr") == "~nobody-of-that-name/run.zarr"


@pytest.mark.parametrize(
    "store", ["runs/my%20run.zarr", "../run.zarr", "/a/~/b", "s3://bucket/my%20run", "memory://x/~"]
)
def test_everything_else_stays_as_it_was_given(store: str) -> None:
    assert place_of(store) == store


def test_a_path_object_is_a_place_too() -> None:
    assert place_of(Path("/scratch/run.zarr")) == "/scratch/run.zarr"


def test_what_is_a_place_already_does_not_change() -> None:
    place = place_of("file:///scratch/100%2525%20run.zarr")
    assert place_of(place) == place == "/scratch/100%25 run.zarr"
