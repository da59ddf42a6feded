"""Work shared among threads: every element once, in order, and errors are told."""

from __future__ import annotations

import threading

import pytest
import torch

from psplatform.tensors import shares as module
from psplatform.tensors.shares import copy, shares, together


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("sizes", [[], [0], [1], [1000, 0, 3], [64] * 9, [5, 100_000, 70, 1 << 17]])
def test_every_element_is_in_one_share_in_order(sizes: list[int], count: int) -> None:
    found = shares(sizes, count)
    assert 1 <= len(found) <= count
    elements = [(number, at) for share in found for number, piece in share for at in range(piece.start, piece.stop)]
    assert elements == [(number, at) for number, size in enumerate(sizes) for at in range(size)]
    lengths = [sum(piece.stop - piece.start for _, piece in share) for share in found]
    assert max(lengths) <= sum(sizes) / count + 64


def test_short_vectors_are_not_shared() -> None:
    assert len(shares([1000, 2000])) == 1


def test_long_vectors_are_shared_among_cores_that_torch_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(module, "_cores", lambda: 6)
    assert module.threads() == len(shares([1 << 24])) == 3
    monkeypatch.setattr(module, "_cores", lambda: 1)
    assert module.threads() == len(shares([1 << 24])) == 1


def test_all_is_done_at_once_and_the_first_error_is_raised() -> None:
    barrier, done = threading.Barrier(3, timeout=30), []

    def work(number: int, name: str) -> None:
        barrier.wait()
        done.append((number, name))
        if number:
            raise ValueError(name)

    with pytest.raises(ValueError, match="^b$"):
        together(work, [0, 1, 2], ["a", "b", "c"])
    assert sorted(done) == [(0, "a"), (1, "b"), (2, "c")]


@pytest.mark.parametrize("sizes", [[], [0], [1], [1000, 0, 3], [64] * 9])
def test_vectors_are_copied_whole_by_any_number_of_threads(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST", 1)
    monkeypatch.setattr(module, "threads", lambda **_: 3)
    sources = [torch.randn(size) for size in sizes]
    targets = [torch.zeros(size) for size in sizes]
    copy(sources, targets)
    assert all(torch.equal(source, target) for source, target in zip(sources, targets, strict=True))
