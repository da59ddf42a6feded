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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Protocol

from psplatform.network.counters import STEADY_S, Counters, opposite
from psplatform.network.sightings import Direction

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

_TOO_LITTLE: Final = 0.02
"""One that carries less than this part of its rate carries messages."""

_LITTLE: Final = 0.25
_LITTLE_S: Final = 1.0
"""What waits for late confirmations carries less than this part of its rate; that is not the same for so long."""

_PART: Final = 0.2
"""An end that carries less than this part of what a direction carries is not what slows that down."""

_LATE_S: Final = 0.6
"""What was counted is looked at so late: by then other hosts have said what they counted as well."""


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


def judge(counters: Counters, beliefs: Beliefs, host: str, now: float) -> None:
    """Learn what directions can carry from each sample, of any host, that ended a while ago and was not judged yet.

    And what can go out of `host`, which has just said what it counted, if something waits there.
    """
    full_rate = counters.full_rate(host, now)
    if full_rate is not None:
        _settle(beliefs, (host, True), full_rate, now)
    unjudged = counters.take_unjudged(now - _LATE_S)
    beside = counters.peers() if unjudged else {}
    for until, counted in unjudged:
        for key in ((counted, True), (counted, False)):
            _judge(counters, beliefs, beside, key, until)


def _judge(
    counters: Counters,
    beliefs: Beliefs,
    beside: Mapping[Direction, Sequence[Direction]],
    key: Direction,
    until: float,
) -> None:
    level, rate = beliefs.level(key), counters.steady(key, until)
    if max(counters.rates(key, until), default=0.0) >= _AT_LEVEL * level:
        beliefs.confirm(key, until)
    if rate is None or (key[1] and counters.was_full_since(key[0], until)):
        return  # by then it was known better
    case = _Case(counters, beliefs, beside, key, rate, until)
    if rate > _MORE * level and beliefs.may_rise(key):
        beliefs.rise(key, rate, until, limited=case.is_limited())
    elif rate < _CLEARLY * beliefs.expected(key) and key in beside and not rate < _TOO_LITTLE * level < math.inf:
        suspects = case.suspects()
        if suspects is not None and (not case.is_late() or counters.is_even(key, until, case.telling_s())):
            beliefs.fall([key, *suspects], rate, until - STEADY_S, until)


def _settle(beliefs: Beliefs, key: Direction, rate: float, at: float) -> None:
    """Learn what a direction carries that lets no more pass."""
    if beliefs.may_rise(key) and _AT_LEVEL < rate / beliefs.level(key) < 1 / _AT_LEVEL:
        beliefs.confirm(key, at)
    else:
        beliefs.settle(key, rate, at - STEADY_S, at)


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
        """Whether what is received may be confirmed late, for which less is sent.

        An opposite direction is busy, and something waits to go out there, or its host cannot tell.
        """
        back = [opposite(one) for one in (self.key, *self._ends)]
        return any(self._is_busy(one) and not self._lets_pass(one) for one in back)

    def telling_s(self) -> float:
        """Return for how long it must carry the same until that tells more than late confirmations could make of it."""
        return _LITTLE_S if self.rate < _LITTLE * self.beliefs.level(self.key) < math.inf else STEADY_S

    def _lets_pass(self, key: Direction) -> bool:
        """Whether nothing waits before a direction, as far as its host knows."""
        host, outward = key
        return outward and self.counters.is_free(host, self.until)

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
