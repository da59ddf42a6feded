"""Which direction of an interface has become slower, told by what hosts count while transfers go on.

A direction that carries the same for a while is as fast as something lets it be.  What is under way through it says
what that may be: itself, or the other end of one of its transfers.  An end that is busy shares what it carries among
its transfers, so that one which gets clearly less than its share is not slowed down by that end; and an end that is not
busy slows nothing down, unless it has become slower itself and carries as little.  If nothing else explains how little
a direction carries, it has become slower.

So this is known while a transfer goes on, and where the other end is busy with others as well.  What ended transfers
tell (`steady`, `estimates`) says what directions could carry before.

A host that knows what waits to go out of it tells more: as long as something waits, what goes out is what that
direction can carry; and what comes in to another host is what can come in there, if nothing waits where it comes from.
A host of which nothing was seen to wait for long may be slowed down where it does not see that, and tells nothing so.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Final, NamedTuple, Protocol

from psplatform.core.workers.counting import QUIET_BYTES
from psplatform.network.sightings import SMALLEST_BYTES, Direction, Sighting

_CLEARLY: Final = 0.6
"""Less than this part of a rate is clearly less, also where packing and copying take their time.

A direction that carries as much at least may be what limits its transfers.
"""

_AT_LEVEL: Final = 0.85
"""One that carries this part of it is as fast as it was."""

_MORE: Final = 1.25
"""So many times its rate is more than headers of packets and full buffers can make of it."""

_SAME: Final = 1.3
"""Two directions of which one carries no more than so many times what the other does may carry the same transfer."""

_FAIR: Final = 0.1
"""Transfers that share a busy direction get this part of an equal share at least."""

_LEAST: Final = 0.05
"""A direction that carries less than this part of what the opposite one carries only confirms that."""

_TOO_LITTLE: Final = 0.02
"""One that carries less than this part of its rate carries messages."""

_PART: Final = 0.2
"""An end that carries less than this part of what a direction carries is not what slows that down."""

_STEADY_S: Final = 0.7
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

_LATE_S: Final = 0.6
"""What was counted is looked at so late: by then other hosts have said what they counted as well."""

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


class Beliefs(Protocol):
    """What is believed of directions."""

    def level(self, key: Direction) -> float:
        """Return the bytes per second that a direction is known to carry, infinity where nothing is known."""

    def expected(self, key: Direction) -> float:
        """Return the bytes per second that a direction is expected to carry, which may be more."""

    def may_rise(self, key: Direction) -> bool:
        """Whether it is expected to carry no more than that."""

    def confirm(self, key: Direction, at: float) -> None:
        """Learn that a direction is as fast as it was."""

    def rise(self, key: Direction, rate: float, at: float, *, limited: bool) -> None:
        """Learn that a direction carries more than was known, and whether another end was busy, so that it may more."""

    def settle(self, key: Direction, rate: float, since: float, at: float) -> None:
        """Learn what a direction carries at most."""

    def fall(self, keys: Sequence[Direction], rate: float, since: float, at: float) -> None:
        """Learn that the first direction carries only that, or one of the others, which carry the same."""


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

    def take(self, samples: Iterable[Sample], now: float) -> None:
        """Add samples, the last of which has just ended."""
        samples, before_s = list(samples), self.counted_s
        self.counted_s += sum(one.seconds for one in samples)
        self.heard_at = now
        if self.behind and now - self.counted_s - min(self.behind) > _RECENT_S:
            self.behind.clear()  # messages are missing
        self.behind.append(now - self.counted_s)
        end = before_s + min(self.behind)
        for one in samples:
            end += one.seconds
            self.samples.append((end, one))
        while self.samples and self.samples[0][0] < now - _KEPT_S:
            self.samples.popleft()
        if self.full_rate(now) is not None:
            self.full_at = now

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
        lately = [one for end, one in self.samples if until - _STEADY_S <= end <= until + _MISSING_S]
        tells = until - self.full_at < _TELLS_S
        return tells and len(lately) > _FULL and all(one.waiting == 0 for one in lately)

    def rates(self, outward: bool, until: float) -> list[float]:
        """Return what a direction has carried until a moment, by sample as `Counters.rates`; nothing if that is open.

        One that was quiet when it was last heard of is so still: its host says nothing more then.
        """
        if not self.samples or self.samples[-1][0] < until - _MISSING_S:
            last = [one for _, one in self.samples][-_QUIET:]
            return [0.0] if last and all(one.out + one.into <= QUIET_BYTES for one in last) else []
        rates, taken_s = list[float](), 0.0
        for end, one in reversed(self.samples):
            if end <= until + _MISSING_S and taken_s < _STEADY_S:
                rates.append(_CONTENT * (one.out if outward else one.into) / one.seconds)
                taken_s += one.seconds
        return rates if taken_s >= _STEADY_S else []


class Counters:
    """What the interfaces of hosts have carried lately, as far as they are counted."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}
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
        host.take(samples, now)
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

    def rates(self, key: Direction, until: float) -> list[float]:
        """Return what a direction has carried until a moment, bytes per second without headers of packets, by sample.

        Nothing where that was not counted.
        """
        host, ended = self._hosts.get(key[0]), self._ended.get(key, 0.0)
        # An address of this machine for instance, to which nothing goes through the interface.
        if host is None or not ended or self._counted[key] < _CONTAINED * ended:
            return []
        return host.rates(key[1], until)

    def steady(self, key: Direction, until: float) -> float | None:
        """Return what a direction has carried until a moment, bytes per second; ``None`` if that has changed.

        Or if it is only what confirms the packets of the other direction.
        """
        rates, opposite = self.rates(key, until), self.rates(_opposite(key), until)
        if len(rates) < _FEWEST or min(rates) <= 0 or max(rates) > _STEADY * min(rates):
            return None
        rate = fmean(rates)
        return rate if rate > max(_LEAST * fmean(opposite or [0.0]), SMALLEST_BYTES / _STEADY_S) else None

    def full_rate(self, host: str, until: float) -> float | None:
        """Return what goes out of a host, bytes per second, if more waits to; ``None`` if that is not known."""
        found = self._hosts.get(host)
        return found.full_rate(until) if found is not None else None

    def is_free(self, host: str, until: float) -> bool:
        """Whether it is known that nothing has waited to go out of a host for a while."""
        found = self._hosts.get(host)
        return found is not None and found.is_free(until)

    def is_even(self, key: Direction, until: float) -> bool:
        """Whether a steady direction has carried the same in every sample: an interface lets no more pass."""
        rates = self.rates(key, until)
        return pstdev(rates) <= _EVEN * fmean(rates)


def judge(counters: Counters, beliefs: Beliefs, host: str, now: float) -> None:
    """Learn what both directions of a host can carry, from what was counted there and at other hosts."""
    beside = counters.peers()
    until = now - _LATE_S
    full_rate = counters.full_rate(host, now)
    if full_rate is not None:
        _settle(beliefs, (host, True), full_rate, now)
    for key in ((host, True), (host, False)):
        level, rate = beliefs.level(key), counters.steady(key, until)
        if max(counters.rates(key, until), default=0.0) >= _AT_LEVEL * level:
            beliefs.confirm(key, until)
        if rate is None:
            continue
        case = _Case(counters, beliefs, beside, key, rate, until)
        if rate > _MORE * level and beliefs.may_rise(key):
            beliefs.rise(key, rate, until, limited=case.is_limited())
        elif rate < _CLEARLY * beliefs.expected(key) and key in beside and not rate < _TOO_LITTLE * level < math.inf:
            suspects = case.suspects()
            if suspects is not None and (counters.is_even(key, until) or not case.is_late()):
                beliefs.fall([key, *suspects], rate, until - _STEADY_S, until)


def _settle(beliefs: Beliefs, key: Direction, rate: float, at: float) -> None:
    """Learn what a direction carries that lets no more pass."""
    if beliefs.may_rise(key) and _AT_LEVEL < rate / beliefs.level(key) < 1 / _AT_LEVEL:
        beliefs.confirm(key, at)
    else:
        beliefs.settle(key, rate, at - _STEADY_S, at)


@dataclass(frozen=True, slots=True)
class _Case:
    """A direction that has carried clearly less until a moment than it could."""

    counters: Counters
    beliefs: Beliefs
    beside: Mapping[Direction, Sequence[Direction]]
    key: Direction
    rate: float
    until: float

    def suspects(self) -> list[Direction] | None:
        """Return which other ends may be as slow; ``None`` if something else may be why so little is carried."""
        host, outward = self.key
        if outward and self.counters.is_free(host, self.until):
            return None
        senders = self._senders() if not outward else []
        if senders and all(self.counters.is_free(one, self.until) for one in senders):
            return []
        if any(self.counters.full_rate(one, self.until) is not None for one in senders):
            return None
        if not self._is_known() or any(self._explains(end) for end in self._ends):
            return None
        return [end for end in self._ends if self._may_be_slow(end)]

    def _senders(self) -> list[str]:
        """Return the hosts that it may have received from: those that have sent something worth it meanwhile."""
        sent = {end[0]: self.counters.rates(end, self.until) for end in self._ends}
        return [host for host, rates in sent.items() if rates and fmean(rates) >= _PART * self.rate]

    def is_limited(self) -> bool:
        """Whether another end is busy with as much at least, and known to limit: it may be why that is not more."""
        busy = [end for end in self._ends if self._is_busy(end) and self.beliefs.may_rise(end)]
        return any(_SAME * self.beliefs.level(end) >= self.rate for end in busy)

    def is_late(self) -> bool:
        """Whether what is received may be confirmed late, for which less is sent: an opposite direction is busy."""
        return any(self._is_busy(_opposite(one)) for one in (self.key, *self._ends))

    @property
    def _ends(self) -> Sequence[Direction]:
        return self.beside.get(self.key, ())

    def _is_known(self) -> bool:
        """Whether what it carries may be what is known to be under way: the other ends carry as much."""
        ends = [self.counters.rates(end, self.until) for end in self._ends]
        return not all(ends) or _SAME * sum(fmean(rates) for rates in ends) >= self.rate

    def _is_busy(self, key: Direction) -> bool:
        """Whether a direction has carried all the time about as much as it can, as far as that was counted."""
        rates = sorted(self.counters.rates(key, self.until))
        return len(rates) > 1 and rates[1] >= _CLEARLY * self.beliefs.level(key)  # one may be from before

    def _explains(self, end: Direction) -> bool:
        """Whether another end may let no more pass, as far as it is known."""
        level, rates = self.beliefs.level(end), self.counters.rates(end, self.until)
        if math.isinf(level):
            return not rates or max(rates) >= _PART * self.rate
        if not rates or self._is_busy(end):
            return self.rate >= _FAIR * level / len(self.beside[end])
        carried = self.counters.steady(end, self.until)
        if carried is None or not _SAME * self.rate < carried < _CLEARLY * level:
            return False
        return not any(self._is_busy(other) for other in self.beside[end])

    def _may_be_slow(self, end: Direction) -> bool:
        """Whether another end may have become slower itself: it carries as little, and as evenly."""
        if end[1] and self.counters.is_free(end[0], self.until):
            return False
        if not self.counters.rates(end, self.until):
            return True
        carried = self.counters.steady(end, self.until)
        level = self.beliefs.level(end)
        return carried is not None and _SAME * carried >= self.rate and carried < _CLEARLY * level < math.inf


def _opposite(key: Direction) -> Direction:
    host, outward = key
    return host, not outward
