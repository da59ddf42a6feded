"""Since when gradient workers have been missing: pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from psplatform.core.supervision.decisions import Rules

_NEVER: Final = float("inf")


class Shortage:
    """Measures how long a run has had too few gradient workers, or none.

    One that is made may fail: it counts as there once it is heard.  Until then it ends no shortage, and begins none.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._unheard: set[str] = set()
        self._none_since = self._few_since = _NEVER

    def expect(self, name: str) -> None:
        """Note that a worker is made."""
        self._unheard.add(name)

    def hears(self, name: str) -> bool:
        """Note a sign of life; return whether it is the worker's first."""
        first = name in self._unheard
        self._unheard.discard(name)
        return first

    def unheard(self, workers: Collection[str]) -> set[str]:
        """Return which of `workers` have given no sign of life."""
        return self._unheard.intersection(workers)

    def note(self, workers: Collection[str], now: float) -> None:
        """Note who is there, in seconds of the clock that all times here come from."""
        self._unheard.intersection_update(workers)
        heard = len(workers) - len(self._unheard)
        if heard:
            self._none_since = _NEVER
        elif not workers:
            self._none_since = min(self._none_since, now)
        if heard >= self._rules.workers:
            self._few_since = _NEVER
        elif len(workers) < self._rules.workers:
            self._few_since = min(self._few_since, now)

    def lets_share(self, workers: Collection[str], now: float) -> bool:
        """Return whether workers have been missing for so long that they may share processes with copies of shards."""
        deserted = not workers and now - self._none_since >= self._rules.deserted_s
        few = len(workers) < self._rules.workers
        return deserted or (few and now - self._few_since >= self._rules.share_after_s)
