"""What hosts count at their interfaces: what each direction has carried lately, and where bytes have waited."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import accumulate, pairwise
from statistics import fmean, pstdev
from typing import Final, NamedTuple

from psplatform.core.workers.counting import QUIET_BYTES
from psplatform.network.sightings import SMALLEST_BYTES, Direction, Sighting

_LEAST: Final = 0.05
"""A direction that carries less than this part of what the opposite one carries only confirms that."""

STEADY_S: Final = 0.7
"""A rate that stays for so long is that of an interface, and not of a processor that packs or copies."""

_FEWEST: Final = 4
"""Of fewer samples nobody can say that their rates are the same; one that took long is an average."""

_STEADY: Final = 1.4
"""The fastest sample of a steady rate is no more than so many times the slowest."""

_EVEN: Final = 0.035
"""Standard deviation, as a part of the mean, of the rates that an interface at its limit has: others vary more."""

_FULL: Final = 2
"""So many samples in a row, before and after each of which something waits, tell what a direction carries at most."""

_FULL_BYTES: Final = 1 << 19
"""If they carried so much: in few samples of a slow interface, packets of 64 KiB are all or nothing."""

_LATELY_S: Final = 0.75
"""Such samples tell that for so long."""

_TELLS_S: Final = 60.0
"""For so long after something was seen to wait, it means something that nothing waits."""

_QUIET: Final = 4
"""After so many samples of nothing but messages, nothing is said any more."""

_MISSING_S: Final = 0.1
"""Samples that would have ended so much later or earlier are those of the moment."""

_TIMED: Final = 32
"""Messages by which it is told how late they come."""

_RECENT_S: Final = 1.5
"""Transfers that have ended so long ago may have gone on while that was counted."""

_KEPT_S: Final = 4.0
"""Samples are kept for so long."""

_SILENT_S: Final = 5.0
"""If nothing was heard for so long of the process that counts for a host, another one may."""

_CONTENT: Final = 0.95
"""Part of the counted bytes that is not headers of packets."""

_CONTAINED: Final = 0.5
"""A counter that has counted less than this part of what went through does not count planned transfers."""


class Sample(NamedTuple):
    """What both directions of an interface have carried in so many seconds, in bytes.

    Attributes
    ----------
    waiting
        Bytes that waited to go out at its end; ``None`` where that is not known.
    """

    seconds: float
    out: float
    into: float
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """Consecutive samples of a host's interface, the last of which ends now, by one of those that count there."""

    source: str
    host: str
    samples: tuple[Sample, ...]


@dataclass(eq=False)
class _Host:
    """The samples of a host, each with when it ended.

    Attributes
    ----------
    counted_s
        Seconds of all samples: the host's own time.
    behind
        By how much that is less than when the last messages came, which is least for those that came fastest.
    full_at
        When something was seen to wait to go out for a while: it is known there, unless that was long ago.
    """

    source: str
    heard_at: float
    samples: deque[tuple[float, Sample]] = field(default_factory=deque)
    counted_s: float = 0.0
    behind: deque[float] = field(default_factory=partial(deque, maxlen=_TIMED))
    full_at: float = -math.inf

    def take(self, samples: Iterable[Sample], now: float) -> list[float]:
        """Add samples, the last of which has just ended; return when each did."""
        samples, before_s = list(samples), self.counted_s
        self.counted_s += sum(one.seconds for one in samples)
        self.heard_at = now
        if self.behind and now - self.counted_s - min(self.behind) > _RECENT_S:
            self.behind.clear()  # messages are missing
        self.behind.append(now - self.counted_s)
        began = before_s + min(self.behind)
        ends = [began + passed_s for passed_s in accumulate(one.seconds for one in samples)]
        self.samples.extend(zip(ends, samples, strict=True))
        while self.samples and self.samples[0][0] < now - _KEPT_S:
            self.samples.popleft()
        if self.full_rate(now) is not None:
            self.full_at = now
        return ends

    def full_rate(self, until: float) -> float | None:
        """Return what went out when something waited all the time lately, bytes per second; ``None`` if it did not."""
        found = list[Sample]()
        known = [(end, one) for end, one in self.samples if end <= until + _MISSING_S]
        for (_, before), (end, one) in reversed(list(pairwise(known))):
            if not found and end < until - _LATELY_S:
                break
            if before.waiting and one.waiting:
                found.append(one)
                carried = _CONTENT * sum(one.out for one in found)
                if len(found) >= _FULL and carried >= _FULL_BYTES:
                    return carried / sum(one.seconds for one in found)
            elif found:
                break
        return None

    def is_free(self, until: float) -> bool:
        """Whether nothing has waited to go out for a while."""
        lately = [one for end, one in self.samples if until - STEADY_S <= end <= until + _MISSING_S]
        tells = until - self.full_at < _TELLS_S
        return tells and len(lately) > _FULL and all(one.waiting == 0 for one in lately)

    def rates(self, outward: bool, until: float, lately_s: float) -> list[float]:
        """Return what a direction has carried until a moment, by sample as `Counters.rates`; nothing if that is open.

        One that was quiet when it was last heard of is so still: its host says nothing more then.
        """
        if not self.samples or self.samples[-1][0] < until - _MISSING_S:
            last = [one for _, one in self.samples][-_QUIET:]
            return [0.0] if last and all(one.out + one.into <= QUIET_BYTES for one in last) else []
        rates, taken_s = list[float](), 0.0
        for end, one in reversed(self.samples):
            if end <= until + _MISSING_S and taken_s < lately_s:
                rates.append(_CONTENT * (one.out if outward else one.into) / one.seconds)
                taken_s += one.seconds
        return rates if taken_s >= lately_s else []


class Counters:
    """What the interfaces of hosts have carried lately, as far as they are counted."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
        self._unjudged: list[tuple[float, str]] = []  # when samples have ended, and of which hosts: a heap
        self._judged_until = -math.inf
        # By direction, the bytes that were counted, and those of transfers that ended meanwhile.
        self._counted: defaultdict[Direction, float] = defaultdict(float)
        self._ended: defaultdict[Direction, float] = defaultdict(float)
        # By sender and receiver, when a transfer between them was last known that may have been under way.
        self._used: dict[tuple[str, str], float] = {}

    def take(self, count: Count, now: float) -> bool:
        """Take what was counted; return whether it tells anything: one process counts for each host."""
        samples = [one for one in count.samples if one.seconds > 0]
        host = self._hosts.get(count.host)
        if host is None or (host.source != count.source and now - host.heard_at > _SILENT_S):
            host = self._hosts[count.host] = _Host(count.source, now)
        if host.source != count.source or not samples:
            return False
        for end in host.take(samples, now):
            if end > self._judged_until:
                heappush(self._unjudged, (end, count.host))
        for outward in (True, False):
            self._counted[count.host, outward] += sum(one.out if outward else one.into for one in samples)
        return True

    def end(self, seen: Sighting) -> None:
        """Note that a transfer has ended, by which counters are told that count it."""
        for key in seen.directions if seen.tells else ():
            if key[0] in self._hosts:
                self._ended[key] += seen.size_bytes

    def note_under_way(self, ways: Iterable[tuple[str, str]], now: float) -> None:
        """Note between which hosts something may be under way, or has been lately."""
        self._used = {way: at for way, at in self._used.items() if at > now - _RECENT_S}
        self._used.update((way, now) for way in ways if way[0] != way[1])

    def peers(self) -> dict[Direction, list[Direction]]:
        """Return the other ends of the transfers that may have been under way lately, by direction."""
        found: defaultdict[Direction, list[Direction]] = defaultdict(list)
        for sender, receiver in self._used:
            found[sender, True].append((receiver, False))
            found[receiver, False].append((sender, True))
        return dict(found)

    def rates(self, key: Direction, until: float, lately_s: float = STEADY_S) -> list[float]:
        """Return what a direction has carried until a moment, bytes per second without headers of packets, by sample.

        Of so many seconds before it; nothing where that was not counted.
        """
        host, ended = self._hosts.get(key[0]), self._ended.get(key, 0.0)
        # An address of this machine for instance, to which nothing goes through the interface.
        if host is None or not ended or self._counted[key] < _CONTAINED * ended:
            return []
        return host.rates(key[1], until, lately_s)

    def steady(self, key: Direction, until: float) -> float | None:
        """Return what a direction has carried until a moment, bytes per second; ``None`` if that has changed.

        Or if it is only what confirms the packets of the other direction.
        """
        rates, against = self.rates(key, until), self.rates(opposite(key), until)
        if len(rates) < _FEWEST or min(rates) <= 0 or max(rates) > _STEADY * min(rates):
            return None
        rate = fmean(rates)
        return rate if rate > max(_LEAST * fmean(against or [0.0]), SMALLEST_BYTES / STEADY_S) else None

    def take_unjudged(self, until: float) -> list[tuple[float, str]]:
        """Remove and return the samples that ended by a moment, oldest first: when each ended, and of which host.

        One that comes so late that others which ended after it were returned is left out.
        """
        found = []
        while self._unjudged and self._unjudged[0][0] <= until:
            found.append(heappop(self._unjudged))
        self._judged_until = found[-1][0] if found else self._judged_until
        return found

    def full_rate(self, host: str, until: float) -> float | None:
        """Return what goes out of a host, bytes per second, if more waits to; ``None`` if that is not known."""
        found = self._hosts.get(host)
        return found.full_rate(until) if found is not None else None

    def was_full_since(self, host: str, at: float) -> bool:
        """Whether something was seen to wait to go out of a host at a moment or later."""
        found = self._hosts.get(host)
        return found is not None and found.full_at >= at

    def is_free(self, host: str, until: float) -> bool:
        """Whether it is known that nothing has waited to go out of a host for a while."""
        found = self._hosts.get(host)
        return found is not None and found.is_free(until)

    def is_even(self, key: Direction, until: float, lately_s: float) -> bool:
        """Whether a steady direction has carried the same in every sample of so long: no more is let pass."""
        rates = self.rates(key, until, lately_s)
        return bool(rates) and pstdev(rates) <= _EVEN * fmean(rates)


def opposite(key: Direction) -> Direction:
    """Return the other direction of the same interface."""
    host, outward = key
    return host, not outward
