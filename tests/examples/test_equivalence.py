"""Architectures of every kind learn under `bsp` what a plain loop of PyTorch learns from the same batches.

Gradients are those of plain PyTorch bit for bit, and so is the mean of two.  The ResNet-18 depends on that: two plain
loops that begin 1e-7 apart are far from each other after 50 updates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import psplatform as ps

UPDATES = 50
COMMITS = [[(0, number), (1, number)] for number in range(1, UPDATES + 1)]


def learned(like: Any, job: ps.Job) -> Any:
    """Return what the job learns in a simulation, in which gradients are real."""
    found = ps.simulate(job, keep_records=True)
    commits = [one for one in found.records if one["kind"] == "commit"]
    assert [list(zip(one["slots"], one["sequences"], strict=True)) for one in commits] == COMMITS
    return type(like)(found.model, [one["loss"] for one in commits], found.summary()["evaluation_loss"])


@pytest.mark.parametrize("name", ["gpt2", "bert_classifier", "resnet18", "lstm_text"])
def test_two_workers_learn_what_plain_pytorch_learns(
    architecture: Callable[[str], Any], assert_alike: Callable[[Any, Any], None], name: str
) -> None:
    """Each tensor, running statistics included, each loss of 50 updates and the held-out loss."""
    one = architecture(name)
    job = one.job_of()
    expected = one.plain(job)
    found = learned(expected, job)
    trained = {key for key, parameter in job.model().named_parameters() if parameter.requires_grad}
    assert trained <= found.state.keys()
    assert_alike(found, expected)


def test_one_batch_that_differs_is_seen(
    architecture: Callable[[str], Any], assert_alike: Callable[[Any, Any], None]
) -> None:
    """The comparison can fail."""
    one = architecture("lstm_text")
    job = one.job_of()
    other = one.plain(job, [*COMMITS[:-1], [(0, UPDATES), (1, UPDATES + 1)]])
    with pytest.raises(AssertionError, match="classes.weight"):
        assert_alike(learned(other, job), other)
