"""Run times of a synthetic cluster, rounds played on them without a driver, and a model fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.predictor import Observation, Predictor, Times
from psplatform.policies.run_times.training import fit

NODES = (38, 40, 40, 40)
SLOW_UNTIL = 61


@contextmanager
def single_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads would wait for each other, and might add in another order."""
    with single_thread():
        yield


def cluster_times(
    seed: int,
    *,
    rounds: int = 160,
    nodes: Sequence[int] = NODES,
    slow: Sequence[tuple[int, int]] = ((0, SLOW_UNTIL),),
) -> Times:
    """Draw the run times of workers on some nodes, the last of which is slow in the given spans of rounds.

    Each node has an effect that follows an AR(1) process, each worker one that stays, and each round its noise; over
    all, mean 1.057 s and deviation 0.393 s.  In a slow span the workers of the last node need 2 s more.

    Returns
    -------
    float64[rounds, n]
    """
    rng = np.random.default_rng(seed)
    node = np.repeat(np.arange(len(nodes)), nodes)
    effects = np.empty((rounds, len(nodes)))
    effect = rng.standard_normal(len(nodes))
    for number in range(rounds):
        effect = 0.9 * effect + np.sqrt(1 - 0.9**2) * rng.standard_normal(len(nodes))
        effects[number] = effect
    noise = rng.standard_normal((rounds, len(node)))
    times = 0.2 * effects[:, node] + 0.2 * rng.standard_normal(len(node)) + 0.27 * noise
    times = np.maximum(1.057 + 0.393 * (times - times.mean()) / times.std(), 0.15)
    for first, end in slow:
        times[first:end, node == node[-1]] += 2.0
    return times


@dataclass(frozen=True)
class Game:
    """What became of rounds that were played: the cutoff of each, and x_(c), the time it took."""

    cutoffs: np.ndarray
    seconds: np.ndarray

    def throughput(self, first: int, end: int | None = None) -> float:
        """Return the sum of c / x_(c) over a span of rounds."""
        return float(np.sum((self.cutoffs / self.seconds)[first:end]))


def round_of(times: Times, cutoff: int) -> Observation:
    """Return what is seen of a round that takes the fastest `cutoff`."""
    order = np.argsort(times, kind="stable")
    censored = np.ones(len(times), dtype=bool)
    censored[order[:cutoff]] = False
    seen = np.where(censored, np.nan, times)
    return Observation(np.arange(len(times)), seen, censored, float(times[order[cutoff - 1]]))


def play_rounds(predictor: Predictor, times: Times, *, full: int | None = None, cutoff: int | None = None) -> Game:
    """Play a round for each row of `times`: full ones first, then with the predictor's choice or a given cutoff."""
    slots = np.arange(times.shape[1])
    full = predictor.full_rounds if full is None else full
    cutoffs, seconds = [], []
    for number, row in enumerate(times):
        chosen = len(slots) if number < full else cutoff or predictor.choose(slots).cutoff
        seen = round_of(row, chosen)
        predictor.observe(seen)
        cutoffs.append(chosen)
        seconds.append(seen.cutoff_time)
    return Game(np.array(cutoffs), np.array(seconds))


def best_game(times: Times) -> Game:
    """Play every round with the cutoff that turned out to be the best, found by trying all."""
    ordered = np.sort(times, axis=1)
    best = np.argmax(np.arange(1, times.shape[1] + 1) / ordered, axis=1)
    return Game(best + 1, ordered[np.arange(len(times)), best])


@pytest.fixture(scope="session")
def cluster() -> Callable[..., Times]:
    """Draw run times: ``cluster(seed, rounds=160, nodes=(38, 40, 40, 40), slow=[(0, 61)])``."""
    return cluster_times


@pytest.fixture(scope="session")
def play() -> Callable[..., Game]:
    """Play rounds: ``play(predictor, times)``."""
    return play_rounds


@pytest.fixture(scope="session")
def best() -> Callable[[Times], Game]:
    """Play with perfect foresight."""
    return best_game


@pytest.fixture(scope="session")
def see() -> Callable[[Times, int], Observation]:
    """Return what is seen of a round."""
    return round_of


@pytest.fixture(scope="session")
def fitted() -> FittedModel:
    """Return a model fitted to 360 full rounds, of another seed, in which the last node is slow now and then."""
    with single_thread():
        times = cluster_times(1, rounds=360, slow=[(60, 120), (180, 200), (240, 300)])
        return fit(times, steps=200, seed=0)


@pytest.fixture(scope="session")
def small() -> FittedModel:
    """Return a model of six workers, fitted in a moment; the last of them is slow now and then."""
    with single_thread():
        return fit(cluster_times(1, rounds=120, nodes=(5, 1), slow=[(30, 60), (80, 100)]), steps=120, seed=0, hidden=16)


@pytest.fixture(scope="session")
def same() -> Callable[[Any, Any], bool]:
    """Compare two models bit for bit."""

    def compare(one: FittedModel, other: FittedModel) -> bool:
        return one.shape == other.shape and one.to_bytes() == other.to_bytes()

    return compare
