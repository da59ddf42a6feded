"""A torch DataLoader is taken by what it wraps, or refused with what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from psplatform.errors import ConfigurationError
from psplatform.tasks.data.loaders import batch_size_of, unwrapped
from psplatform.tasks.data.sources import as_source

X = torch.arange(12.0).reshape(6, 2)
DATA = TensorDataset(X, torch.arange(6))


def doubled(samples: list[Any]) -> Any:
    return {"x": 2 * torch.stack([x for x, _ in samples])}


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"drop_last": True}, {"num_workers": 2}], ids=str)
def test_a_loader_stands_for_its_data_set(options: dict[str, Any]) -> None:
    """The platform chooses the samples; the loader's batches, order and processes are not used."""
    loader = DataLoader(DATA, batch_size=4, **options)
    inputs, targets = as_source(loader).fetch(np.array([5, 0, 5]))
    assert targets.tolist() == [5, 0, 5]
    assert torch.equal(inputs, X[[5, 0, 5]])
    assert batch_size_of(loader) == 4
    assert not as_source(loader).exact


def test_a_loader_brings_its_collate() -> None:
    """Also one that a callable returns; a collate of the job's goes first."""
    loader = DataLoader(DATA, collate_fn=doubled)
    for data in (loader, lambda: loader, unwrapped(loader)):
        assert torch.equal(as_source(data).fetch(np.array([1, 0]))["x"], 2 * X[[1, 0]])
    assert as_source(loader, len).fetch(np.array([1, 0])) == 2


def test_what_is_no_loader_has_no_batch_size() -> None:
    assert batch_size_of(DATA) is None
    assert unwrapped(DATA) is DATA


class Stream(IterableDataset[Any]):
    """Samples one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return iter(X)


REFUSED = {
    "The data is an IterableDataset": Stream,
    "The DataLoader wraps an IterableDataset": lambda: DataLoader(Stream()),
    "by a SubsetRandomSampler": lambda: DataLoader(DATA, sampler=SubsetRandomSampler([1, 2])),
    "by a WeightedRandomSampler": lambda: DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 6, 6)),
    "by a RandomSampler": lambda: DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)),
    "draws by a SubsetRandomSampler": lambda: DataLoader(
        DATA, batch_sampler=BatchSampler(SubsetRandomSampler([1]), batch_size=2, drop_last=False)
    ),
    "by a list": lambda: DataLoader(DATA, batch_sampler=[[0, 1], [2, 3]]),
    "has batch_size=None": lambda: DataLoader(DATA, batch_size=None),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_dealt_by_index_is_refused_with_the_remedy(message: str) -> None:
    """Ignoring what the loader was told would train on other samples than the user thinks."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        as_source(REFUSED[message]())
    assert caught.value.field == "data"


def test_the_lines_to_write_instead_are_shown() -> None:
    """They are a data set once the dots are filled in."""
    with pytest.raises(ConfigurationError) as caught:
        as_source(Stream())
    lines = [line for line in str(caught.value).splitlines() if line.startswith(("class", "    def"))]
    assert len(lines) == 3
    names: dict[str, Any] = {"torch": torch}
    exec("\n".join(lines).replace("return ...", "return 3"), names)  # noqa: S102  the lines that were shown
    assert len(names["Samples"]()) == names["Samples"]()[0] == 3
