"""A fitted model as bytes, and what is refused."""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from psplatform.errors import ConfigurationError
from psplatform.policies.run_times.fitted_model import FittedModel


def arrays_of(model: FittedModel) -> dict[str, Any]:
    with np.load(io.BytesIO(model.to_bytes()), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def as_bytes(arrays: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_a_model_is_read_back_as_it_was_written(small: FittedModel, same: Callable[..., bool]) -> None:
    assert same(FittedModel.from_bytes(small.to_bytes()), small)


def test_its_arrays_are_plain(small: FittedModel) -> None:
    assert {array.dtype.kind for array in arrays_of(small).values()} <= set("fiubU")


@pytest.mark.parametrize("content", [b"", b"not a model", b"PK\x03\x04 cut off", b"\x93NUMPY"])
def test_other_bytes_are_refused_with_the_remedy(content: bytes) -> None:
    with pytest.raises(
        ConfigurationError, match="model m.npz is no file of a run-time model .*; make one with"
    ) as caught:
        FittedModel.from_bytes(content, name="model m.npz")
    assert caught.value.field == "model"


def test_a_single_array_is_refused() -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    with pytest.raises(ConfigurationError, match="run-time model"):
        FittedModel.from_bytes(stream.getvalue())


def test_pickles_are_refused_and_not_run() -> None:
    with pytest.raises(ConfigurationError, match="is no file of a run-time model"):
        FittedModel.from_bytes(as_bytes({"format": np.array([object()], dtype=object)}))


Damage = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda a: a.pop("format"), "is no run-time model"),
        (lambda a: a.update(format=np.array("something else")), "is no run-time model"),
        (lambda a: a.update(version=np.array(2)), "has format version 2, and this release reads version 1"),
        (lambda a: a.pop("version"), "is damaged: it has no version"),
        (lambda a: a.update(workers=np.array(-1)), "is damaged: its workers is -1"),
        (lambda a: a.update(workers=np.array(10**12)), "is damaged: its workers is 1000000000000"),
        (lambda a: a.update(window=np.array(2.5)), "is damaged: it has no window"),
        (lambda a: a.update(workers=np.array(7)), "is damaged: emission.out.matrix is not an array of 16x7 float32"),
        (lambda a: a.pop("carry.bias"), "is damaged: carry.bias is not an array of 16 float32"),
        (lambda a: a["first"].fill(np.nan), "is damaged: first is not finite"),
    ],
)
def test_what_is_damaged_is_named(small: FittedModel, damage: Damage, sentence: str) -> None:
    arrays = arrays_of(small)
    damage(arrays)
    with pytest.raises(ConfigurationError, match=sentence):
        FittedModel.from_bytes(as_bytes(arrays))


@pytest.mark.parametrize("seed", range(5))
def test_no_damage_raises_anything_else(small: FittedModel, seed: int) -> None:
    rng = random.Random(f"damage {seed}")
    whole = small.to_bytes()
    for _ in range(40):
        content = bytearray(whole[: rng.choice([len(whole), rng.randrange(len(whole))])])
        for _ in range(rng.randint(0, 3) if content else 0):
            content[rng.randrange(len(content))] = rng.randrange(256)
        with contextlib.suppress(ConfigurationError):
            FittedModel.from_bytes(bytes(content))
