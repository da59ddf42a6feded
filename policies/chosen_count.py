"""Rounds that wait for a number of gradients chosen anew before each of them; what DBW and B-DBW have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psplatform.core.parameters import parameter
from psplatform.core.policy import Answer, Committed, Gradient, Policy, Traits, Verdict, View, Worker, not_yet, yes
from psplatform.policies.bsp import admit_current, start_on_newer
from psplatform.policies.estimates.arrivals import Arrivals
from psplatform.policies.estimates.round_times import ESTIMATORS, RoundTimes

_TIE = 1e-9
"""Relative difference below which two scores count as equal: rounding must not decide between them."""

_ROSTERS = 8
"""Numbers of live workers whose round times are remembered, the last seen: each may take n^2 cells."""

_NOT_CHOSEN = not_yet("how many to wait for is chosen when all shards show the last commit")


def best_count(gains: list[float], times: list[float]) -> int:
    """Return the k with the largest gain per second, the largest of equals; all workers where no gain is positive.

    A negative gain divided by a time would reward long rounds, so it is never ranked.

    Parameters
    ----------
    gains, times
        Gain and duration of a round of k = 1 .. n gradients.
    """
    scores = [gain / max(time, 1e-12) for gain, time in zip(gains, times, strict=True)]
    best = max(scores)
    if best <= 0:
        return len(scores)
    return max(k for k, score in enumerate(scores, 1) if score >= best * (1 - _TIE))


@dataclass(frozen=True, slots=True)
class Choice:
    """How many gradients the round of a version waits for, and why."""

    version: int
    count: int
    reason: str


@dataclass
class ChosenCount(Policy):
    """A synchronous policy that waits in each round for the k gradients with the largest gain per second.

    What comes later was computed on an old version and is dropped on arrival; its worker finishes it first, which is
    why the time of a round depends on how many the round before waited for.  The learning rate does not depend on k.

    The n of every rule is the number of *live* workers at the moment of choosing.  Round times are learned apart for
    each number of live workers, of which the last few seen are remembered: the k-th of fewer comes later, so that what
    was learned of more would mislead, and is right again when they are back.  The first round, and those after the
    roster changed to a size not remembered, wait for all.

    Nobody is waited for in vain: a round closes when no other live worker can contribute, whatever k is.
    """

    times: str = parameter("monotone", choices=ESTIMATORS, help="how round times are estimated from arrivals")
    times_window: int | None = parameter(
        1000, minimum=1, help="newest arrivals kept per round time; none stands for all"
    )
    late_samples: bool = parameter(False, help="learn round times from late gradients too, which biases them upwards")

    def __post_init__(self) -> None:
        """Check the parameters and start with nothing learned."""
        super().__post_init__()
        self._arrivals = Arrivals(late=self.late_samples)
        self._tables: dict[int, RoundTimes] = {}
        self._before: int | None = None
        self._choice: Choice | None = None

    @abstractmethod
    def gains(self, workers: int) -> list[float] | None:
        """Return the gain of a round of k = 1 .. `workers` gradients, or ``None`` while nothing is known of it."""

    def learn(self, commit: Committed) -> None:
        """Learn what `gains` needs from `commit`."""

    def at_least(self, workers: int) -> tuple[int, str]:
        """Return how many the next round of at most `workers` must wait for, whatever is best, and why."""
        return 1, ""

    @property
    def traits(self) -> Traits:
        """Exactly one version per round; late workers finish."""
        return Traits(exact=True)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Pool current gradients, drop late ones, and note when they came."""
        label = gradient.label.version
        if label == view.version:
            self._arrivals.note(label, view.round_started_at, view.live)
        else:
            self._arrivals.note_late(label, view.now)
        return admit_current(gradient, view)

    def pool_ready(self, view: View) -> Answer:
        """Wait for the k chosen for this round, or for all who are left.

        A gradient can come before all shards were seen to show its version; then nothing is chosen yet for its round,
        and the choice for the last one does not count.
        """
        choice = self._choice if self._choice and self._choice.version == view.version else None
        if choice and view.pooled >= choice.count:
            return yes(choice.reason)
        if view.busy == 0:
            wanted = f" of k = {choice.count}" if choice else ""
            return yes(f"{view.pooled}{wanted} are in: no other live worker can contribute")
        return not_yet(f"{view.pooled} of {choice.count}") if choice else _NOT_CHOSEN

    def decision(self, view: View) -> Mapping[str, float]:
        """Return the k chosen for this round, if it was chosen before the round was over."""
        choice = self._choice
        return {"k": choice.count} if choice and choice.version == view.version else {}

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on when the round is over."""
        return start_on_newer(worker, view)

    def on_commit(self, commit: Committed, view: View) -> None:
        """Learn from the round, and choose how many the one of its version waits for."""
        for sample in self._arrivals.close(commit.version - 1, self._before, commit.gradients):
            self._times_of(sample.workers).add(sample.before, sample.rank, sample.seconds)
        self.learn(commit)
        self._before = len(commit.gradients)
        self._choice = self._choose(commit.version, self._before, max(view.live, 1))

    def state(self) -> dict[str, Any]:
        """Return the round times and the choice for the round at hand."""
        choice = self._choice
        return {
            "times": [[workers, table.state()] for workers, table in self._tables.items()],
            "before": self._before,
            "choice": [choice.version, choice.count, choice.reason] if choice else None,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned; arrivals of rounds that were under way are not learned from."""
        self._arrivals = Arrivals(late=self.late_samples)
        self._tables.clear()
        for workers, table in state["times"]:
            self._times_of(workers).restore(table)
        self._before = state["before"]
        self._choice = Choice(*state["choice"]) if state["choice"] else None

    def _times_of(self, workers: int) -> RoundTimes:
        table = self._tables.pop(workers, None) or RoundTimes(workers, self.times_window, self.times)
        self._tables[workers] = table
        while len(self._tables) > _ROSTERS:
            del self._tables[next(iter(self._tables))]
        return table

    def _choose(self, version: int, before: int, workers: int) -> Choice:
        gains, table = self.gains(workers), self._times_of(workers)
        if gains is None or not table.known:
            return Choice(version, workers, f"k = {workers} of {workers}: what fewer would give is not known yet")
        times = table.estimate(min(before, workers))
        best = best_count(gains, times)
        least, why = self.at_least(workers)
        count = max(best, least)
        gain, time = gains[count - 1], times[count - 1]
        if count == best:
            why = "the most per second" if gain > 0 else "no number has a positive gain"
        return Choice(version, count, f"k = {count} of {workers}: gain {gain:.3g} in {time:.3g} s, {why}")
