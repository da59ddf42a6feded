"""Elastic BSP: asynchronous between barriers, and every barrier where the workers are predicted to wait least."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from psplatform.core.parameters import parameter
from psplatform.core.policy import (
    APPLY,
    POOL,
    Answer,
    Committed,
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
from psplatform.policies.superstep import Meeting, Superstep
from psplatform.policies.zipline import Times, fullgridscan, gridscan, zipline

SOLVERS = {"zipline": zipline, "gridscan": gridscan, "fullgridscan": fullgridscan}
SHORTEST_INTERVAL_S = 1e-9
"""Taken where two pushes were simultaneous, so that predicted times increase."""

_BEFORE = yes("before the barrier")
_WAITS = not_yet("at the barrier")


def predicted_pushes(last: float, interval_s: float, now: float, count: int) -> Times:
    """Return the next `count` pushes of a worker that pushed `last` and does so every `interval_s`: ``float64[count]``.

    A push that is overdue is expected `now`, and the others at their distance from it.
    """
    interval_s = max(interval_s, SHORTEST_INTERVAL_S)
    return max(last + interval_s, now) + interval_s * np.arange(count, dtype=np.float64)


def plan(paces: Mapping[int, tuple[float, float]], now: float, lookahead: int, solver: str = "zipline") -> Meeting:
    """Return the barrier that costs the least waiting among the next `lookahead` pushes of each worker.

    Parameters
    ----------
    paces
        By slot, time of the last push and interval in seconds; at least one.
    """
    slots = sorted(paces)
    points = [predicted_pushes(*paces[slot], now, lookahead) for slot in slots]
    found = SOLVERS[solver](points)
    quotas = dict(zip(slots, found.quotas.tolist(), strict=True))
    # A push counts for the chosen point that it is nearest to.
    stops_at = {
        slot: float(one[quotas[slot] - 1]) - paces[slot][1] / 2 for slot, one in zip(slots, points, strict=True)
    }
    return Meeting(found.time, found.spread, quotas, stops_at)


@dataclass
class ElasticBulkSynchronous(Policy):
    """Run asynchronously from barrier to barrier, and put each barrier where the workers wait least.

    After a barrier the workers are monitored until each has pushed twice.  From their last intervals `lookahead` pushes
    of each are predicted, and the barrier is put where one push of every worker lies closest together.  Pushes before
    it are applied at once; at their last one workers wait, and when all live workers are there the last ones are
    averaged in one step and everybody goes on from the same version.

    Guarantee: from the decision to the barrier no worker that was there at the decision makes more than `lookahead`
    pushes, if the barrier is met by count; a gradient that is not finite is tried again beyond that.

    Without monitoring, each barrier is decided at the one before it, from the intervals known by then; with `lookahead`
    1 every superstep is then a round of `bsp`.

    Who joins after the decision runs along until the others are expected at the barrier, or, when one is already
    there, starts behind it.  Who is lost is not waited for; what it pushed last stays in the average.

    Differences from the paper
        * Where the barrier is enforced and how the last pushes are merged follow later works of the authors where those
          say it.  By count a worker stops after its predicted number of pushes, exact while the intervals hold.  By
          time it stops at the push nearest to its chosen point, or the first one after it, so that a worker that has
          become slow makes fewer pushes instead of a late one.
        * A predicted push that is past at the decision is expected at once, and those after it as much later: the push
          itself is still to come, and to be counted.
        * The time the decision takes is not accounted for.
    """

    lookahead: int = parameter(15, minimum=1, maximum=10_000, help="pushes predicted per worker (R)")
    solver: str = parameter("zipline", choices=tuple(SOLVERS), help="what looks for the barrier; zipline is exact")
    barrier: str = parameter("count", choices=("count", "time"), help="what tells a worker that it is at the barrier")
    merge: str = parameter("average", choices=("average", "sequential"), help="how the last pushes are applied")
    monitoring: bool = parameter(True, help="whether each superstep begins with two pushes of every worker")

    source: ClassVar[str] = (
        'X. Zhao, M. Papagelis, A. An, B. X. Chen, J. Liu, Y. Hu, "Elastic bulk synchronous parallel model for '
        'distributed deep learning", ICDM 2019'
    )

    def __post_init__(self) -> None:
        """Check the parameters and begin the first superstep."""
        super().__post_init__()
        self._paces = Paces()
        self._superstep = self._first()

    @property
    def traits(self) -> Traits:
        """Each shard's newest version will do; those at the barrier are looked at after commits and losses."""
        return Traits(exact=False)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Apply a push before the barrier at once, pool a last one."""
        slot, superstep = gradient.slot, self._superstep
        self._paces.push(slot, view.now)
        superstep.push(slot)
        if not superstep.is_final(slot, view.now, by_count=self.barrier == "count"):
            self._decide(view)
            return APPLY
        finite = math.isfinite(gradient.squared_norm) and math.isfinite(gradient.loss)
        if self.merge == "average" and not finite and not view.pooled:
            # It will be refused, and at the barrier there would be nothing to merge: the worker tries again.
            return APPLY
        superstep.arrived.add(slot)
        if self.merge == "sequential":
            return APPLY
        superstep.pooled = True
        return POOL

    def pool_ready(self, view: View) -> Answer:
        """Wait until every live worker is at the barrier."""
        if view.busy:
            return not_yet(f"{view.pooled} are at the barrier")
        meeting = self._superstep.meeting or Meeting()
        return yes(f"all are at the barrier, which was to cost the first one {meeting.spread:.3g} s")

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Go on, unless at the barrier."""
        joins = worker.counter < 0
        if joins:
            self._paces.forget(worker.slot)
            self._superstep.forget(worker.slot)
            if all(one.counter < 0 for one in view.members()):
                # Who agreed on a barrier is gone, perhaps with the clock that it was told by.
                self._superstep = self._first()
        if worker.slot in self._superstep.arrived or joins:
            if self._is_being_met(view):
                return _WAITS
            if self._superstep.arrived:
                self._begin(view)
        self._paces.start(worker.slot, view.now)
        return _BEFORE

    def decision(self, view: View) -> Mapping[str, float]:
        """Return when the barrier is expected, and what it is to cost the first worker there, once it is decided."""
        meeting = self._superstep.meeting
        if meeting is None or not meeting.quotas:
            return {}
        return {"barrier in s": max(meeting.time - view.now, 0.0), "wait at barrier s": meeting.spread}

    def on_commit(self, commit: Committed, view: View) -> None:
        """Begin the next superstep when the last pushes were merged."""
        if self._superstep.pooled and not view.pooled:
            self._begin(view)

    def _is_being_met(self, view: View) -> bool:
        """Whether a worker is at the barrier and others are on their way."""
        if self.merge == "average":
            return view.pooled > 0
        arrived = self._superstep.arrived
        if not arrived or view.busy:
            return bool(arrived)
        return any(one.slot not in arrived and one.counter >= 0 for one in view.members())

    def _decide(self, view: View) -> None:
        """Plan the barrier once every live worker was monitored."""
        superstep = self._superstep
        if superstep.meeting is not None or not superstep.may_be_monitored(view.live):
            return
        slots = [one.slot for one in view.members()]
        if all(superstep.is_monitored(slot) for slot in slots):
            paces = {slot: pace for slot in slots if (pace := self._pace_of(slot)) is not None}
            superstep.decide(plan(paces, view.now, self.lookahead, self.solver))

    def _first(self) -> Superstep:
        """Return a superstep of workers of whom nothing is known."""
        return Superstep(None if self.monitoring else Meeting())

    def _begin(self, view: View) -> None:
        """Begin a superstep; without monitoring plan its barrier now, when all start together."""
        self._superstep = Superstep()
        if self.monitoring:
            return
        known = {one.slot: self._pace_of(one.slot) for one in view.members()}
        paces = {slot: (view.now, pace[1]) for slot, pace in known.items() if pace is not None}
        self._superstep.decide(plan(paces, view.now, self.lookahead, self.solver) if paces else Meeting())

    def _pace_of(self, slot: int) -> tuple[float, float] | None:
        """Return when the worker pushed last, and its interval."""
        pace = self._paces.of(slot)
        if pace is None or pace.pushed_at is None or pace.interval_s is None:
            return None
        return pace.pushed_at, pace.interval_s

    def state(self) -> dict[str, Any]:
        """Return the paces and where the superstep stands."""
        return {"paces": self._paces.state(), "superstep": self._superstep.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue with these."""
        self._paces.restore(state["paces"])
        self._superstep = Superstep.restored(state["superstep"])
