"""Decides round by round how many gradients to wait for: full rounds first, then as a predictor says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.forgetting import Forgetting
from psplatform.policies.run_times.generative import Generative
from psplatform.policies.run_times.normal import Normal
from psplatform.policies.run_times.oracle import Oracle, TrueTimes
from psplatform.policies.run_times.predictor import Observation, Predictor, Stream, random_stream
from psplatform.policies.run_times.static import Static

# A computation that took no time at all has no rate; no clock resolves less.
_LEAST_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Round:
    """What was decided for a round: how many gradients it waits for, ``None`` for all, and why."""

    cutoff: int | None
    reason: str


def make_predictor(
    name: str,
    workers: int,
    *,
    seed: int,
    samples: int,
    score: str,
    cutoff: int | None,
    model: FittedModel | None,
    true_times: TrueTimes | None,
) -> Predictor:
    """Return the predictor `name` for a job of `workers` workers, with those of the settings that it has."""
    if name == "generative":
        return Generative(workers, seed, model=model, samples=samples, score=score)
    if name == "normal":
        return Normal(seed)
    if name == "static" and cutoff is not None:
        return Static(cutoff)
    if name == "oracle" and true_times is not None:
        return Oracle(true_times)
    return Forgetting(seed, samples=samples, score=score)


def observation(known: Mapping[int, float], busy: Iterable[int]) -> Observation:
    """Return what a commit tells about run times.

    Parameters
    ----------
    known
        Seconds of computing by slot, of the accepted gradients; x_(c) is the largest of them.
    busy
        Slots of the workers that took part as well and were not done: their run times are above x_(c).
    """
    at_least = {slot: max(seconds, _LEAST_S) for slot, seconds in known.items()}
    slots = sorted({*known, *busy})
    times = np.array([at_least.get(slot, np.nan) for slot in slots])
    return Observation(np.array(slots, dtype=np.int64), times, np.isnan(times), max(at_least.values()))


class Planner:
    """Asks and teaches a predictor.

    What a commit taught is passed on when the next round is planned, so that nobody waits for it to be learned.

    Parameters
    ----------
    full_rounds
        Rounds of all workers to begin with, ``None`` for as many as the predictor wants.
    explore
        Chance of a full round later on.
    seed
        Of that chance.
    """

    def __init__(self, predictor: Predictor, *, full_rounds: int | None, explore: float, seed: int) -> None:
        self._predictor = predictor
        self._full_rounds = predictor.full_rounds if full_rounds is None else full_rounds
        self._explore = explore
        self._seed = seed
        self._rounds = 0
        self._unlearned: Observation | None = None

    def plan(self, slots: list[int]) -> Round:
        """Decide about the coming round of the workers in `slots`, ascending."""
        self._learn()
        if self._rounds < self._full_rounds:
            return Round(None, f"full round {self._rounds + 1} of {self._full_rounds} to begin with")
        if self._explore and random_stream(self._seed, Stream.EXPLORATION, self._rounds).random() < self._explore:
            return Round(None, "a full round, to see who has recovered")
        if not slots:
            return Round(None, "no worker is alive")
        choice = self._predictor.choose(np.array(slots, dtype=np.int64))
        return Round(choice.cutoff, choice.reason)

    def observe(self, known: Mapping[int, float], busy: Iterable[int]) -> None:
        """Learn from the round that is over; see `observation`."""
        self._learn()
        self._unlearned = observation(known, busy)
        self._rounds += 1

    def welcome(self, slot: int) -> None:
        """Forget the times of `slot`, which another process has taken."""
        self._learn()
        self._predictor.welcome(slot)

    def _learn(self) -> None:
        if self._unlearned is not None:
            seen, self._unlearned = self._unlearned, None
            self._predictor.observe(seen)

    def state(self) -> dict[str, Any]:
        """Return what was learned as plain values."""
        self._learn()
        return {"rounds": self._rounds, "learned": self._predictor.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        self._rounds = state["rounds"]
        self._predictor.restore(state["learned"])
