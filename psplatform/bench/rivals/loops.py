"""What all rivals do alike: how long they repeat an iteration, and their processes."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, Final

import torch

_WARM_UP: Final = 3
WARM_UPS: Final = 2 * _WARM_UP
"""Iterations before those that count."""

LEARNING_RATE: Final = 0.1
_FEWEST: Final = 5
_MOST: Final = 100_000
_LIMIT_S: Final = 180.0


def repeats_for(iterate: Callable[[], object], seconds: float) -> int:
    """Return how often to repeat an iteration to measure for so long, after a few to warm up."""
    for _ in range(_WARM_UP):
        iterate()
    began = time.perf_counter()
    for _ in range(_WARM_UP):
        iterate()
    return min(_MOST, max(_FEWEST, round(seconds * _WARM_UP / (time.perf_counter() - began))))


def timed(iterate: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return milliseconds of one iteration, and of its computing in this process."""
    began, computed = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        iterate()
    return (time.perf_counter() - began) / repeats * 1e3, (time.process_time() - computed) / repeats * 1e3


def finish(device: str) -> None:
    """Wait until a device has computed what it was asked for: the CPU has."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def in_processes(work: Callable[..., None], count: int, *arguments: Any) -> list[Any]:
    """Call ``work(number, tell, *arguments)`` in so many new processes; return what each told, in order.

    Raises
    ------
    TimeoutError
        If one has told nothing in time.
    ChildProcessError
        If one has ended before.
    """
    spawning = multiprocessing.get_context("spawn")
    pipes = [spawning.Pipe(duplex=False) for _ in range(count)]
    processes = [
        spawning.Process(target=work, args=(number, there.send, *arguments), daemon=True)
        for number, (_, there) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    for _, there in pipes:
        there.close()
    told: dict[int, Any] = {}
    try:
        give_up_at = time.monotonic() + _LIMIT_S
        while len(told) < count:
            waiting: dict[Any, int] = {here: number for number, (here, _) in enumerate(pipes) if number not in told}
            ready = wait(list(waiting), max(0.0, give_up_at - time.monotonic()))
            if not ready:
                raise TimeoutError(f"processes {sorted(waiting.values())} told nothing within {_LIMIT_S:g} s")
            for here in ready:
                number = waiting[here]
                try:
                    told[number] = pipes[number][0].recv()
                except EOFError:
                    raise ChildProcessError(f"process {number} ended before it had measured") from None
        return [told[number] for number in range(count)]
    finally:
        for process in processes:
            process.join(5.0 if len(told) == count else 0.0)
            process.kill()
