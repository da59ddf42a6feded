"""When the gradients of a round came: what a table of round times is fed with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psplatform.core.policy import Gradient

_ROUNDS = 1000
"""Closed rounds whose late gradients are still recognised: far more than pass while one gradient is computed."""


class Sample(NamedTuple):
    """The `rank`-th gradient came `seconds` into a round of `workers` that followed one of `before` gradients."""

    workers: int
    before: int
    rank: int
    seconds: float


@dataclass(slots=True)
class _Round:
    started_at: float
    workers: int
    mixed: bool = False
    """Whether workers joined or left while gradients came: nothing is learned from it."""
    before: int = 0
    arrived: int = 0
    """Gradients that became samples; 0 until the round is closed."""


class Arrivals:
    """Turns arrivals into samples of T(h, k), once a round is closed.

    Parameters
    ----------
    late
        Whether gradients that come after their round was closed become samples as well.  Of those, only workers that
        had begun in time are seen and not those that skipped to a newer version, so that they make T too large.
    """

    def __init__(self, *, late: bool) -> None:
        self._take_late = late
        self._rounds: dict[int, _Round] = {}
        self._late: list[tuple[int, float]] = []

    def note(self, version: int, started_at: float, workers: int) -> None:
        """Count a gradient that came in time, in the round of `version`, while `workers` were alive."""
        one = self._rounds.setdefault(version, _Round(started_at, workers))
        one.mixed |= one.workers != workers

    def note_late(self, label: int, now: float) -> None:
        """Count a gradient that came after the round of its label."""
        if self._take_late and label in self._rounds:
            self._late.append((label, now))

    def close(self, version: int, before: int | None, gradients: Sequence[Gradient]) -> list[Sample]:
        """Return the samples of the round of `version`, and those of late gradients since the last call.

        Parameters
        ----------
        before
            Gradients of the round before; ``None`` for the first round, which counts as one that finds all ready.
        gradients
            What the round averages, in any order.
        """
        one = self._rounds.get(version)
        samples = []
        if one is not None and not one.mixed:
            one.before = min(before or one.workers, one.workers)
            offsets = _offsets(one.started_at, gradients, together=before is not None)
            samples = [_sample(one, offset) for offset in offsets[: one.workers]]
        samples += self._late_samples(version)
        oldest = version - (_ROUNDS if self._take_late else 0)
        self._rounds = {number: kept for number, kept in self._rounds.items() if number > oldest}
        return samples

    def _late_samples(self, closed: int) -> list[Sample]:
        samples = []
        for label, moment in self._late:
            one = self._rounds.get(label)
            if label <= closed and one is not None and 0 < one.arrived < one.workers:
                samples.append(_sample(one, moment - one.started_at))
        # Of the others the round is decided, but not yet closed here.
        self._late = [(label, moment) for label, moment in self._late if label > closed]
        return samples


def _offsets(started_at: float, gradients: Sequence[Gradient], *, together: bool) -> list[float]:
    """Return when the gradients came into the round, the first one first.

    Where the workers did not start `together`, because processes join a run one after the other, they are taken to have
    started when the first of them did: each came after its own computing and the least of what was added to that.
    """
    offsets = [one.arrived_at - started_at for one in gradients]
    if not together:
        added = min(offset - one.compute_s for offset, one in zip(offsets, gradients, strict=True))
        offsets = [added + one.compute_s for one in gradients]
    return sorted(offsets)


def _sample(one: _Round, seconds: float) -> Sample:
    one.arrived += 1
    return Sample(one.workers, one.before, one.arrived, seconds)
