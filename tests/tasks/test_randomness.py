"""Only one computation of a process draws from torch's generator at a time."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch

from psplatform.tasks import randomness
from psplatform.tasks.cancellation import Cancellation, Cancelled
from psplatform.tasks.randomness import seeded

CPU = torch.device("cpu")


def test_the_block_draws_what_torch_draws_after_manual_seed() -> None:
    """Seeding is exactly torch's own."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    with seeded(5, CPU):
        assert torch.equal(torch.rand(3), expected)


def test_the_generator_is_put_back_also_after_an_error() -> None:
    """The process's other draws go on as if nothing had happened."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)

    def fail() -> None:
        with seeded(6, CPU):
            torch.rand(1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(torch.rand(3), expected)


def test_two_threads_do_not_mix_their_draws() -> None:
    """Whoever comes second waits until the first is done."""
    inside, release = threading.Event(), threading.Event()
    draws: dict[str, torch.Tensor] = {}

    def first() -> None:
        with seeded(1, CPU):
            before = torch.rand(1)
            inside.set()
            release.wait()
            draws["first"] = torch.cat([before, torch.rand(1)])

    def second() -> None:
        with seeded(2, CPU):
            draws["second"] = torch.rand(2)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    inside.wait()
    threads[1].start()
    release.set()
    for thread in threads:
        thread.join()
    for name, seed in (("first", 1), ("second", 2)):
        with seeded(seed, CPU):
            assert torch.equal(draws[name], torch.rand(2))


def test_a_cancelled_computation_does_not_wait_for_its_turn() -> None:
    """It gives up while another computation holds the generator."""
    cancel = Cancellation()
    cancel.cancel()
    raised: list[BaseException] = []

    def waiting() -> None:
        try:
            with seeded(2, CPU, cancel):
                pass
        except Cancelled as error:
            raised.append(error)

    with seeded(1, CPU):
        thread = threading.Thread(target=waiting)
        thread.start()
        thread.join()
    assert len(raised) == 1


def test_numpy_and_python_draw_the_same_too() -> None:
    """Data sets augment with whatever generator their maker knew; all are seeded, and all put back."""

    def draw() -> tuple[float, float]:
        with seeded(3, torch.device("cpu")):
            return float(np.random.random()), random.random()  # noqa: NPY002  the global generator is meant

    random.seed(1)
    expected = random.Random(1).random()
    assert draw() == draw()
    assert random.random() == expected


def test_in_a_process_of_its_own_a_task_puts_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """And draws what it draws elsewhere."""
    with seeded(3, CPU):
        expected = torch.rand(2), random.random(), float(np.random.random())  # noqa: NPY002  the global one is meant
    monkeypatch.setattr(randomness, "_others_draw", True)
    randomness.belong_to_tasks()
    with seeded(3, CPU):
        torch.rand(1)
    with seeded(3, CPU):
        drawn = torch.rand(2), random.random(), float(np.random.random())  # noqa: NPY002  as above
        after = torch.get_rng_state()
    assert torch.equal(drawn[0], expected[0])
    assert drawn[1:] == expected[1:]
    assert torch.equal(torch.get_rng_state(), after)
