"""Says what the interface of a host carries, as long as it carries anything: about twice a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from psplatform.core.protocol.messages import Carried

COUNTING: Final = "counting"
"""Under which its timer is set."""

_SAMPLE_S: Final = 0.125
_SAID: Final = 4
"""Samples of a message."""

QUIET_BYTES: Final = 16384
"""An interface that carries no more during a sample carries messages only."""

_QUIET: Final = 8
"""After so many quiet samples in a row, further ones are said when one is not."""

_ASLEEP: Final = 80
"""After so many it is not looked at before something happens again; what a host receives may have been sent late."""


class Counted(NamedTuple):
    """What the counters of an interface say.

    Attributes
    ----------
    out, into
        Bytes that have gone out and come in.
    waiting
        Bytes that wait to go out, because it lets no more pass; ``None`` where that is not known.
    """

    out: int
    into: int
    waiting: int | None = None


class Counting:
    """Looks at an interface from when something happens until it has carried nothing for ten seconds.

    Parameters
    ----------
    source
        Who counts.
    host
        Whose interface it is.
    read
        Returns what its counters say now.
    """

    def __init__(self, source: str, host: str, read: Callable[[], Counted]) -> None:
        self._source, self._host, self._read = source, host, read
        self._last: tuple[float, Counted] | None = None
        self._samples: list[tuple[float, int, int, int | None]] = []
        self._is_awake = False
        self._quiet = 0

    def wake(self, now: float) -> float | None:
        """Return when to look again, if that begins now."""
        if self._is_awake:
            return None
        self._look(now)
        self._is_awake, self._quiet = True, 0
        return now + _SAMPLE_S

    def go_on(self, now: float) -> tuple[float | None, Carried | None]:
        """Look again; return when to do so the next time, if at all, and what is to be said."""
        self._look(now)
        self._is_awake = self._quiet < _ASLEEP
        at = now + _SAMPLE_S if self._is_awake else None
        if len(self._samples) < _SAID:
            return at, None
        seconds, out, into, waiting = zip(*self._samples, strict=True)
        self._samples = []
        return at, Carried(self._source, self._host, seconds, out, into, () if None in waiting else waiting)

    def _look(self, now: float) -> None:
        counted = self._read()
        if self._last is not None and now > self._last[0]:
            at, before = self._last
            seconds = now - at
            out, into = max(0, counted.out - before.out), max(0, counted.into - before.into)
            self._quiet = self._quiet + 1 if out + into <= QUIET_BYTES else 0
            if self._quiet > _QUIET and self._samples:
                before_s, before_out, before_into, _ = self._samples.pop()
                seconds, out, into = before_s + seconds, before_out + out, before_into + into
            self._samples.append((seconds, out, into, counted.waiting))
        self._last = now, counted
