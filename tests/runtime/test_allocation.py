"""A process that computes keeps what it frees, unless its environment says otherwise."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

import pytest

from psplatform.runtime.allocation import environment_that_keeps

PAGES = (1 << 20) // resource.getpagesize()
"""Of a tensor of 1 MiB."""

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")

PROGRAM = """
import resource
import torch
from psplatform.runtime.allocation import keep_freed_memory

torch.set_num_threads(1)

def take_and_free():
    kept = [torch.empty(1 << 18).fill_(1.0) for _ in range(8)]

def faults():
    for _ in range(60):  # until small allocations beside them have found their places
        take_and_free()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        take_and_free()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // 80

print(faults(), keep_freed_memory(), faults())
"""


def told(**environment: str) -> tuple[int, bool, int]:
    """Return how many pages a tensor costs before and after, and whether memory is kept between."""
    ours = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=180, env=ours | environment
    )
    before, keeps, after = done.stdout.split()
    return int(before), keeps == "True", int(after)


def test_what_dasks_nannies_set_is_undone() -> None:
    """Every page that is taken again has to be cleared again."""
    before, keeps, after = told(MALLOC_TRIM_THRESHOLD_="65536")
    assert before >= PAGES // 2
    assert keeps
    assert after <= PAGES // 10


def test_it_does_the_same_where_nothing_is_set() -> None:
    _, keeps, after = told()
    assert keeps
    assert after <= PAGES // 10


@pytest.mark.parametrize(
    "environment",
    [
        {"MALLOC_TRIM_THRESHOLD_": "131072"},
        {"MALLOC_MMAP_THRESHOLD_": "131072"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_what_a_user_has_chosen_stays(environment: dict[str, str]) -> None:
    before, keeps, after = told(**environment)
    assert not keeps
    assert min(before, after) >= PAGES // 2


@pytest.mark.parametrize("found", [{}, {"MALLOC_TRIM_THRESHOLD_": "65536"}], ids=["nothing", "dask's"])
def test_a_process_can_begin_with_it(found: dict[str, str]) -> None:
    before, keeps, _ = told(**environment_that_keeps(found))
    assert before <= PAGES // 10
    assert not keeps, "it was chosen"


def test_another_choice_stays_for_a_process_that_begins() -> None:
    assert environment_that_keeps({"MALLOC_TRIM_THRESHOLD_": "1"}) == {"MALLOC_TRIM_THRESHOLD_": "1"}
