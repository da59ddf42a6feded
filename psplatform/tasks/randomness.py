"""Exclusive use of the global random generators of torch, NumPy and Python.

User code draws from the global generators (dropout, augmentation, initialisation), and several runs may compute in one
process.  A task that needs reproducible draws therefore holds the one lock, seeds the generators and puts them back.
Gradients of two runs that share a process are therefore computed one after the other.

Putting them back takes longer than the gradient of a small model.  In a process of a cluster that a run has started
for itself nobody else draws, and it is left out (`belong_to_tasks`).
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

import numpy as np
import torch

from psplatform.tasks.cancellation import Cancellation

OWN_PROCESS: Final = "PSPLATFORM_OWN_PROCESS"
"""Variable of the environment of processes that do nothing but what runs ask them for."""

_GENERATOR_LOCK = threading.Lock()
_others_draw = True


def belong_to_tasks() -> None:
    """Put the generators of this process back no more: only tasks of runs draw from them, and each seeds them."""
    global _others_draw  # noqa: PLW0603  as the generators are the process's
    _others_draw = False


# How long a computation that waits for its turn may overlook that it was cancelled.
_POLL_S = 0.02


@contextmanager
def seeded(seed: int, device: torch.device, cancel: Cancellation | None = None) -> Iterator[None]:
    """Run the block alone in this process, with the generators seeded; their state is restored afterwards.

    It is not where they `belong_to_tasks`.

    Raises
    ------
    Cancelled
        If `cancel` is raised before the block's turn has come.
    """
    while not _GENERATOR_LOCK.acquire(timeout=_POLL_S):
        if cancel is not None:
            cancel.check()
    try:
        with _put_back(_generators(device)) if _others_draw else nullcontext():
            for generator in _generators(device):
                generator.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002  users draw from the global one
            yield
    finally:
        _GENERATOR_LOCK.release()


@contextmanager
def _put_back(generators: Sequence[torch.Generator]) -> Iterator[None]:
    states = [generator.get_state() for generator in generators]
    plain, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  users draw from the global one
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(numpy)  # noqa: NPY002  users draw from the global one
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    # torch.manual_seed visits every back end and takes 100 times as long as seeding the generators in use.
    if device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()
    index = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[index]]
