"""Dynamic stale synchronous parallel: the bound of SSP, stretched where extra iterations shorten the wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from psplatform.core.parameters import parameter
from psplatform.core.policy import (
    APPLY,
    Answer,
    Change,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    not_yet,
    yes,
)
from psplatform.policies.estimates.paces import Paces

_WITHIN = yes("within the lower bound")
_CREDIT = yes("has credit left")


def extra_iterations(now: float, interval_s: float, slow_next: float, slow_interval_s: float, most: int) -> int:
    """Return the number of further iterations after which a fast worker waits least for the slowest; O(most).

    The fast worker would push at ``now + r * interval_s``, r = 0 .. `most`, the slowest at
    ``slow_next + j * slow_interval_s``, j = 0 .. `most`.  The smallest r with the least distance is returned.
    """
    best, least, j = 0, float("inf"), 0
    for r in range(most + 1):
        push = now + r * interval_s  # a_r of the paper; slow_next + j * slow_interval_s is its b_j
        while j < most and abs(slow_next + (j + 1) * slow_interval_s - push) <= abs(
            slow_next + j * slow_interval_s - push
        ):
            j += 1
        distance = abs(slow_next + j * slow_interval_s - push)
        if distance < least:
            best, least = r, distance
    return best


@dataclass(frozen=True, slots=True)
class _Field:
    """The largest clock, and the slots of the slowest, at one moment of a run."""

    moment: tuple[float, int, int]
    largest: int
    slowest: tuple[int, ...]


@dataclass
class DynamicStaleSynchronous(Policy):
    """Hold workers to the lower bound, but give the fastest credit for extra iterations where that shortens its wait.

    When the fastest worker would have to wait, its next pushes and those of the slowest are predicted from their last
    intervals, and it gets as many extra iterations as bring two of them nearest together.

    Guarantee: no iteration starts with a clock more than `lower` + `credit` above the minimum, unless `renew` is set.

    With lasting differences in speed no bound helps for long: the fastest worker soon stands at it and goes at the pace
    of the slowest.  `renew` gives a new credit whenever one is spent; clocks then part without limit, and the speed is
    that of `asp`, as in the measurements of the paper.

    Differences from the paper
        * The printed procedure goes on to wait even where it gave credit, and does not charge the iteration that comes
          with it; here r is the number of extra iterations.
        * As printed, a new credit follows each one that is spent, so that its upper bound s_U = s_L + r_max does not
          hold.  Here it does, and `renew` is the printed rule.
        * A worker that gets no credit is asked about again when the slowest has pushed, not only once it is back within
          the lower bound: the wait that was predicted to be the least one is then over.
        * Predictions start when a worker goes on, and an interval does not contain the time it waited.
    """

    lower: int = parameter(3, minimum=0, help="iterations ahead of the slowest that are always allowed (s_L)")
    credit: int = parameter(12, minimum=0, maximum=10_000, help="most extra iterations on top (r_max)")
    renew: bool = parameter(False, help="whether a spent credit may be followed by another, without a bound on the sum")

    source: ClassVar[str] = (
        'X. Zhao, A. An, J. Liu, B. X. Chen, "Dynamic stale synchronous parallel distributed training for deep '
        'learning", ICDCS 2019'
    )

    def __post_init__(self) -> None:
        """Check the parameters; nothing is known yet."""
        super().__post_init__()
        self._paces = Paces()
        # By slot, the clock from which on its credit is spent.
        self._credited_until: dict[int, int] = {}
        self._last_granted = 0
        self._field = _Field((float("nan"), 0, 0), 0, ())

    @property
    def traits(self) -> Traits:
        """Waiting workers are looked at when the minimum clock moves."""
        return Traits(exact=False, wakes=frozenset({Change.MINIMUM_CLOCK}))

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Apply at once, and note when it came."""
        self._paces.push(gradient.slot, view.now)
        return APPLY

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Let go who is within the lower bound or has credit, or gets it now."""
        if worker.counter < 0:
            self._paces.forget(worker.slot)
            self._credited_until.pop(worker.slot, None)
        answer = self._answer(worker, view)
        if answer.at is not None:
            self._paces.start(worker.slot, view.now)
        return answer

    def decision(self, view: View) -> Mapping[str, float]:
        """Return the bound that always holds, and how many extra iterations were granted last."""
        return {"bound": self.lower, **({"extra iterations": self._last_granted} if self.credit else {})}

    def staleness_bound(self, workers: int) -> int | None:
        """Return that of `ssp` with the largest bound there can be; none where credits are renewed."""
        return None if self.renew else (workers - 1) * (2 * (self.lower + self.credit) + 1)

    def _answer(self, worker: Worker, view: View) -> Answer:
        gap = worker.clock - view.minimum_clock
        if gap <= self.lower:
            return _WITHIN
        if worker.clock < self._credited_until.get(worker.slot, 0):
            return _CREDIT
        most = self.credit if self.renew else self.lower + self.credit + 1 - gap
        granted = self._granted(worker, view, most) if most > 0 else 0
        if granted > 0:
            self._credited_until[worker.slot] = worker.clock + granted
            self._last_granted = granted
            return yes(f"{granted} extra iterations end nearest to a push of the slowest")
        return not_yet(f"{gap} iterations ahead of the slowest")

    def _granted(self, worker: Worker, view: View, most: int) -> int:
        """Return how many extra iterations the worker gets: none unless it is the fastest and enough is known."""
        field = self._field_of(view)
        own = self._known(worker.slot)
        slowest = [self._known(slot) for slot in field.slowest]
        if worker.clock < field.largest or own is None or None in slowest:
            return 0
        # Of several slowest ones the last to push decides when the minimum moves.
        slow_next, slow_interval_s = max((start + interval, interval) for start, interval in filter(None, slowest))
        return extra_iterations(view.now, own[1], slow_next, slow_interval_s, most)

    def _known(self, slot: int) -> tuple[float, float] | None:
        """Return when the worker's iteration began and how long one takes, if it has pushed twice."""
        pace = self._paces.of(slot)
        if pace is None or pace.pushed_at is None or pace.interval_s is None or pace.pushes < 2:
            return None
        # The slowest may just have pushed, and be released only after this answer.
        return max(pace.started_at, pace.pushed_at), pace.interval_s

    def _field_of(self, view: View) -> _Field:
        # Many workers may be asked about at one moment; the members are gone through once.
        moment = (view.now, view.version, view.live)
        if self._field.moment != moment:
            members = view.members()
            slowest = tuple(one.slot for one in members if one.clock == view.minimum_clock)
            self._field = _Field(moment, max(one.clock for one in members), slowest)
        return self._field

    def state(self) -> dict[str, Any]:
        """Return the paces and the credits."""
        return {"paces": self._paces.state(), "credited_until": [list(one) for one in self._credited_until.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with these paces and credits."""
        self._paces.restore(state["paces"])
        self._credited_until = dict(state["credited_until"])
