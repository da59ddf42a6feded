"""Leases that tune themselves: given with each beat, for as long as beats have been late lately.

A lease that is too short takes a busy process for a lost one; one that is too long lets a stopped one hold the run up.
What is right depends on the machines and their load, so it is measured: a lease lasts several times the longest recent
pause between beats.  What passes before the first beat is no pause: a role that was only named may still be starting.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

_TIMES: Final = 5.0
"""Longest recent pauses in a lease: pauses under changing load differ by less from one minute to the next."""

_FIRST: Final = 3.0
"""Shortest leases in one of the first: just started, processes are busier than later."""

_REMEMBERED: Final = 256
"""Pauses that count, of all holders together."""

_REMEMBERED_S: Final = 20.0
"""Seconds for which a pause counts: few holders beat seldom, and one long pause would lengthen leases for a minute."""


@dataclass
class Grants:
    """The leases that one side has given.

    Parameters
    ----------
    shortest_s, longest_s
        Limits of a lease.

    Attributes
    ----------
    ceiling_s
        Another limit, which may change: what the standbys have heard of.
    """

    shortest_s: float
    longest_s: float
    ceiling_s: float = math.inf
    _heard_at: dict[str, float] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)
    _beaten: set[str] = field(default_factory=set)
    _pauses: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _beats: int = 0
    _inherited_s: float | None = None

    @property
    def first_s(self) -> float:
        """Seconds of the leases that are given while nothing is known of how late beats are."""
        return min(self.longest_s, _FIRST * self.shortest_s)

    @property
    def duration_s(self) -> float:
        """Seconds of the next lease."""
        return min(self.ceiling_s, self._wanted_s)

    @property
    def _before_beats_s(self) -> float:
        return self.first_s if self._inherited_s is None else self._inherited_s

    @property
    def _wanted_s(self) -> float:
        if self._beats < 2 * max(1, len(self._heard_at)):
            return self._before_beats_s
        longest_s = max((pause_s for _, pause_s in self._pauses), default=0.0)
        return min(self.longest_s, max(self.shortest_s, _TIMES * longest_s))

    def longest_left(self, now: float) -> float:
        """Return the seconds from now on of the longest lease that is held, or would be given if nothing limited it."""
        return max(self._wanted_s, max(self._until.values(), default=now) - now)

    def succeed(self, longest_s: float | None = None) -> None:
        """Take the place of another that has given leases nobody here knows of, none longer than so many seconds."""
        self._inherited_s = self.longest_s if longest_s is None else min(self.longest_s, longest_s)

    def watch(self, name: str, now: float) -> None:
        """Expect beats of `name` from now on."""
        self._heard_at.setdefault(name, now)
        self._until.setdefault(name, now + self._before_beats_s)

    def forget(self, name: str) -> None:
        """Expect nothing of `name` any more."""
        self._heard_at.pop(name, None)
        self._until.pop(name, None)
        self._beaten.discard(name)

    def renew(self, name: str, now: float) -> float | None:
        """Renew the lease of `name`, which beats; return its seconds, or ``None`` if nothing is expected of it."""
        if name not in self._heard_at:
            return None
        self._note_pause(name, now)
        self._beats += 1
        self._heard_at[name] = now
        seconds = self.duration_s
        # Never shorter than what it was given before: it may act until then.
        self._until[name] = max(self._until[name], now + seconds)
        return seconds

    def _note_pause(self, name: str, now: float) -> None:
        if name in self._beaten:
            self._pauses.append((now, now - self._heard_at[name]))
        self._beaten.add(name)
        while self._pauses and self._pauses[0][0] < now - _REMEMBERED_S:
            self._pauses.popleft()

    def is_over(self, name: str, now: float) -> bool:
        """Whether the lease of `name` is over, and it is still expected to beat."""
        return name in self._until and self._until[name] <= now

    def expire(self, now: float, spared: Collection[str] = ()) -> list[tuple[str, float]]:
        """Take out and return whose lease is over, with the seconds of silence.

        Those in `spared`, in whose place nobody could act, have as long as if each lease were the longest.
        """
        over = []
        for name, until in self._until.items():
            heard_at = self._heard_at[name]
            if (max(until, heard_at + self.longest_s) if name in spared else until) <= now:
                over.append((name, now - heard_at))
        for name, _ in over:
            self.forget(name)
        return over


MARGIN: Final = 0.1
"""By which part of its lease a holder stops early: clocks of two hosts, drifting or slewed, differ by far less."""


def entitlement(sent_at: float, seconds: float, margin: float = MARGIN) -> float:
    """Return until when, on its own clock, the holder may act that asked at `sent_at` and was given `seconds`."""
    return sent_at + seconds * (1.0 - margin)


@dataclass
class Leases:
    """Leases by name.

    Parameters
    ----------
    duration_s
        Silence after which a lease is over.
    """

    duration_s: float
    _heard_at: dict[str, float] = field(default_factory=dict)

    def renew(self, name: str, now: float) -> None:
        """Renew the lease of `name`, which gives a sign of life, or begin one."""
        # Reinserting keeps the dictionary ordered by age, so that the next to expire is always the first.
        self._heard_at.pop(name, None)
        self._heard_at[name] = now

    def forget(self, name: str) -> None:
        """End the lease of `name`, which is gone for another reason."""
        self._heard_at.pop(name, None)

    def expire(self, now: float) -> list[str]:
        """Take out and return the names whose lease is over, longest silent first."""
        over = []
        for name, heard_at in self._heard_at.items():
            if now - heard_at < self.duration_s:
                break
            over.append(name)
        for name in over:
            del self._heard_at[name]
        return over

    def silence(self, name: str, now: float) -> float:
        """Return for how many seconds `name` has been silent."""
        return now - self._heard_at.get(name, now)
