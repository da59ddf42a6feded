"""Computing in one thread: what a sum comes to depends on how many threads share it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and the linear algebra below NumPy use one thread, and as many as before afterwards.

    For arrays of a simulation's size several threads are slower as well, most of all on a busy machine.
    """
    threads = torch.get_num_threads()
    with threadpool_limits(limits=1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
