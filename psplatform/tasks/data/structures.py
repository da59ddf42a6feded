"""Values of any structure: dicts, tuples, lists, named tuples and dataclasses, nested at will, with leaves in them.

A batch is such a value, whose leaves are mostly tensors; so are a sample, and arrays that are handed in together.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import default_collate

_CONVERTED: Final = (torch.float32, torch.float64)
"""Tensors of these types get the model's; integers mean something else, and half precision was chosen on purpose."""


IsLeaf = Callable[[Any], bool]


def _never(_: Any) -> bool:
    return False


def parts_of(value: Any) -> list[Any] | None:
    """Return what a container holds, in its own order, or None for a leaf."""
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, Tensor):
        return None
    if isinstance(value, Mapping):
        return list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return None


def rebuilt(like: Any, parts: list[Any]) -> Any:
    """Return a container of the same kind as `like`, with the same keys, that holds `parts`."""
    if type(like) in (tuple, list):
        return type(like)(parts)
    if isinstance(like, MutableMapping):
        written = copy.copy(like)
        for key, part in zip(like, parts, strict=True):
            written[key] = part
        return written
    if isinstance(like, Mapping):
        return dict(zip(like, parts, strict=True))
    if dataclasses.is_dataclass(like) and not isinstance(like, type):
        new = copy.copy(like)
        for field, part in zip(dataclasses.fields(like), parts, strict=True):
            object.__setattr__(new, field.name, part)  # a frozen one too
        return new
    if hasattr(like, "_make"):
        return like._make(parts)
    return parts if isinstance(like, list) else tuple(parts)


def leaves_of(value: Any, is_leaf: IsLeaf = _never) -> list[Any]:
    """Return all leaves, in the order in which `mapped` visits them."""
    parts = None if is_leaf(value) else parts_of(value)
    return [value] if parts is None else [leaf for part in parts for leaf in leaves_of(part, is_leaf)]


def mapped(value: Any, change: Callable[[Any], Any], is_leaf: IsLeaf = _never) -> Any:
    """Return the same structure with `change` applied to each leaf; what it leaves as it is, is not copied.

    Parameters
    ----------
    is_leaf
        Tells which containers are leaves nevertheless.
    """
    parts = None if is_leaf(value) else parts_of(value)
    if parts is None:
        return change(value)
    changed = [mapped(part, change, is_leaf) for part in parts]
    return value if all(map(operator.is_, changed, parts)) else rebuilt(value, changed)


def placed(batch: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    """Return the batch with every tensor on `device`.

    Objects with a method ``to`` of their own (packed sequences, batches of other libraries) are moved by it, whole.

    Parameters
    ----------
    dtype
        What tensors of float32 and float64 become; None: they stay as they are.
    """

    def place(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device, leaf.dtype if dtype is None or leaf.dtype not in _CONVERTED else dtype)
        return leaf.to(device) if _moves_itself(leaf) else leaf

    return mapped(batch, place, _moves_itself)


def collated(samples: list[Any]) -> Any:
    """Return the batch that torch's `default_collate` makes of the samples, which may also be dataclasses.

    A dataclass becomes one of the same class whose fields are batches.
    """
    first = samples[0]
    if not _holds_dataclass(first):
        return default_collate(samples)
    if isinstance(first, Mapping):
        return rebuilt(first, [collated([sample[key] for sample in samples]) for key in first])
    parts = [parts_of(sample) or [] for sample in samples]
    return rebuilt(first, [collated(list(column)) for column in zip(*parts, strict=True)])


def _holds_dataclass(value: Any) -> bool:
    if dataclasses.is_dataclass(value):
        return not isinstance(value, type)
    return any(map(_holds_dataclass, parts_of(value) or []))


def _moves_itself(value: Any) -> bool:
    return callable(getattr(value, "to", None)) and not isinstance(value, type)
