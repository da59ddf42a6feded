"""What a torch `DataLoader` wraps, which is what the platform needs: it deals batches and reads samples itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from psplatform.errors import ConfigurationError

Data = Any  # objects of libraries that need not be installed; told apart at run time
Collate = Callable[[list[Any]], Any]

_BY_INDEX = """write instead a data set that returns a sample by its index,
class Samples(torch.utils.data.Dataset):
    def __len__(self): return ...  # how many samples there are
    def __getitem__(self, index): return ...  # the sample of that index
or hand in list(data), where all samples fit into memory."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A data set and the function that makes a batch of a list of its samples; None: torch's default."""

    dataset: Data
    collate: Collate | None


def unwrapped(data: Data) -> Data:
    """Return what a `DataLoader` wraps as `Loaded`, and any other data as they are.

    Of the loader are taken its data set and its `collate_fn`.  Its order, processes and last batch are not: the job's
    `sampling` says which samples make a batch, and each gradient worker reads its own.

    Raises
    ------
    ConfigurationError
        If the samples have no index, or the loader draws them by a sampler or in batches of its own.
    """
    if isinstance(data, IterableDataset):
        raise _unusable(f"The data is an IterableDataset, whose samples have no index; {_BY_INDEX}")
    if not isinstance(data, DataLoader):
        return data
    if isinstance(data.dataset, IterableDataset):
        raise _unusable(f"The DataLoader wraps an IterableDataset, whose samples have no index; {_BY_INDEX}")
    if data.batch_sampler is None:
        remedy = "hand in a data set of single samples, and batch_size=... to the job"
        raise _unusable(f"The DataLoader has batch_size=None, so it makes no batches of samples; {remedy}.")
    sampler = data.batch_sampler.sampler if type(data.batch_sampler) is BatchSampler else data.batch_sampler
    if not _is_usual(sampler):
        remedy = "hand in its dataset, or a torch Subset of it; the job's sampling says in which order"
        raise _unusable(f"The DataLoader draws by a {type(sampler).__name__}, which would be ignored; {remedy}.")
    return Loaded(data.dataset, None if data.collate_fn is default_collate else data.collate_fn)


def batch_size_of(data: Data) -> int | None:
    """Return the batch size of a `DataLoader`, or None for anything else."""
    return getattr(data.batch_sampler, "batch_size", None) if isinstance(data, DataLoader) else None


def without_index(data: Data) -> str:
    """Return a sentence that refuses data over which one can only iterate."""
    return f"The data is a {type(data).__name__}, whose samples have no index; {_BY_INDEX}"


def _is_usual(sampler: Any) -> bool:
    # What a DataLoader makes by itself, for shuffle=True and for shuffle=False.
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    return type(sampler) is SequentialSampler


def _unusable(sentence: str) -> ConfigurationError:
    return ConfigurationError(sentence, field="data")
