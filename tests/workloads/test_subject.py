"""What a job trains is found in whichever of its fields says it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.tasks.supervised import SupervisedTask
from psplatform.workloads.subject import task_of, with_defaults

DATA = TensorDataset(torch.ones(20, 2))


def job(**fields: Any) -> Job:
    return Job(**{"model": list, "step": min, "data": DataLoader(DATA, batch_size=5), **fields})


def test_a_loader_says_how_many_samples_a_gradient_has_unless_the_job_does() -> None:
    assert with_defaults(job()).batch_size == 5
    assert with_defaults(job(batch_size=32)).batch_size == 32
    assert with_defaults(job(data=DATA)).batch_size == 32


def test_a_loader_does_not_travel() -> None:
    """It may hold generators and processes, which cannot be pickled."""
    task, _ = task_of(job(test=DataLoader(DATA, collate_fn=len), collate=sum))
    assert isinstance(task, SupervisedTask)
    assert (task.data.dataset, task.data.collate) == (DATA, None)
    assert (task.test.dataset, task.test.collate) == (DATA, len)
    assert (task.step, task.collate, task.loss) == (min, sum, None)


def test_data_without_index_are_refused_before_anything_is_started() -> None:
    class Stream(IterableDataset[Any]):
        """Samples that come one after the other."""

        def __iter__(self) -> Iterator[Any]:
            return iter(())

    for field in ("data", "test"):
        with pytest.raises(ConfigurationError, match="IterableDataset, whose samples have no index"):
            task_of(job(**{field: Stream()}))
