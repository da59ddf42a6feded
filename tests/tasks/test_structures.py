"""Tensors are found wherever they lie in a batch."""

from __future__ import annotations

from collections import OrderedDict, UserDict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from psplatform.tasks.data.structures import collated, leaves_of, mapped, placed

CPU = torch.device("cpu")


class Pair(NamedTuple):
    """Two values."""

    x: Any
    y: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    """A field that is given and one that is not."""

    x: Any
    twice: Any = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", self.x + self.x)


class Encoding(UserDict[str, Any]):
    """A dict of a library's own, with an attribute."""

    origin = "none"


def encoding() -> Encoding:
    made = Encoding(x=1, y=2)
    made.origin = "a tokenizer"
    return made


@pytest.mark.parametrize(
    "value",
    [
        3,
        [1, (2, 3)],
        {"b": 1, "a": [2]},
        OrderedDict(b=1, a=2),
        Pair(1, {"z": 2}),
        Frozen(1),
        encoding(),
        {"deep": [Pair((1,), Frozen(2))]},
        (),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_structure_keeps_its_kind(value: Any) -> None:
    """Only the leaves change, and the value that was handed in stays as it was."""
    before = leaves_of(value)
    changed = mapped(value, lambda leaf: -leaf)
    assert type(changed) is type(value)
    assert leaves_of(changed) == [-leaf for leaf in before]
    assert leaves_of(value) == before
    assert mapped(value, lambda leaf: leaf) is value


def test_a_dict_of_another_library_keeps_its_attributes() -> None:
    changed = mapped(encoding(), lambda leaf: leaf + 1)
    assert (changed.origin, changed["y"]) == ("a tokenizer", 3)


def test_a_mapping_that_cannot_be_written_becomes_a_dict() -> None:
    assert mapped(MappingProxyType({"x": 1}), lambda leaf: leaf + 1) == {"x": 2}


class Elsewhere:
    """An object that knows how to move."""

    def __init__(self) -> None:
        self.device: torch.device | None = None

    def to(self, device: torch.device) -> Elsewhere:
        self.device = device
        return self


def test_every_tensor_of_a_batch_is_moved() -> None:
    """On the device meta, which every torch has, tensors show that they were moved; all else stays the same object."""
    text, other = "a sentence", Elsewhere()
    batch = {
        "x": torch.ones(2),
        "more": [(torch.ones(1), text), Pair(torch.zeros(3), Frozen(torch.ones(1)))],
        "o": other,
    }
    moved = placed(batch, torch.device("meta"), None)
    tensors = [leaf for leaf in leaves_of(moved) if isinstance(leaf, Tensor)]
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 5
    assert moved["more"][0][1] is text
    assert moved["o"].device == torch.device("meta")


def test_a_packed_sequence_moves_as_a_whole() -> None:
    """It is a named tuple, of which torch wants one part on the CPU whatever the device."""
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    moved = placed({"packed": packed}, torch.device("meta"), None)["packed"]
    assert isinstance(moved, PackedSequence)
    assert (moved.data.device.type, moved.batch_sizes.device.type) == ("meta", "cpu")


@pytest.mark.parametrize("wanted", [torch.float32, torch.float64])
def test_floating_point_numbers_get_the_type_that_is_wanted(wanted: torch.dtype) -> None:
    """Integers, truth values, complex numbers and half precision mean something else and stay."""
    others = [torch.int32, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.float16, torch.bfloat16]
    batch = [torch.ones(2, dtype=dtype) for dtype in (torch.float32, torch.float64, *others)]
    assert [tensor.dtype for tensor in placed(batch, CPU, wanted)] == [wanted, wanted, *others]
    assert placed(batch, CPU, None) is batch


def test_samples_in_dataclasses_become_a_batch_in_one() -> None:
    """Whatever order the keys of a dict have."""
    first, second = {"a": Frozen(1.0), "b": (1, 2)}, {"b": (3, 4), "a": Frozen(2.0)}
    batch = collated([first, second])
    assert isinstance(batch["a"], Frozen)
    assert (batch["a"].x.tolist(), batch["a"].twice.tolist()) == ([1.0, 2.0], [2.0, 4.0])
    assert [one.tolist() for one in batch["b"]] == [[1, 3], [2, 4]]
