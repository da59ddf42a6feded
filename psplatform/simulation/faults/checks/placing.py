"""Where gradient workers are looked for, and in which order (S13)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from psplatform.core.protocol.messages import PROCESS_ENDS
from psplatform.memory import MemoryRun
from psplatform.memory.processes.placing import OnPlacing, PlacingPool
from psplatform.memory.processes.worker_pool import VirtualWorkerPool
from psplatform.simulation.faults.checks.histories import violated

MOST_TRIES: Final = 3
"""A process in which so many gradient workers could not be started is left alone."""

Place = tuple[str, str]
"""A coordinator, which knows only what it has tried itself, and a process."""


class Placing(OnPlacing):
    """Checks how one coordinator after the other looks for processes for gradient workers.

    A process that has no copy of a shard is asked before one that has, and of those that are alike in this, one in
    which fewer workers could not be started before one in which more could not; where too many could not, none is tried
    any more, nor where a role was lost and nothing was heard since.  A process whose worker leaves by itself can take
    another at once, unless it ends.
    """

    def __init__(self, run: MemoryRun) -> None:
        self._run = run
        self._failed: Counter[Place] = Counter()
        self._known: set[Place] = set()
        self._asked: set[Place] = set()
        self._silent: dict[Place, float] = {}
        self._first: dict[str, frozenset[str]] = {}
        self._copies: dict[str, frozenset[str]] = {}
        self._unavailable: dict[str, frozenset[str]] = {}

    def look(self) -> None:
        """See what is so before the next event."""
        pool = self._run.leads[-1].workers
        if isinstance(pool, VirtualWorkerPool):
            self._copies = {pool.lead: frozenset(pool.copies)}
            if pool.sighted:
                self._first.setdefault(pool.lead, frozenset(pool.sighted))
            self._unavailable = {pool.lead: frozenset(pool.unavailable.addresses)}

    def is_worth_trying(self, address: str) -> bool:
        """Whether the present coordinator may still try to start a gradient worker there."""
        return self._failed[self._run.leads[-1].name, address] < MOST_TRIES

    def on_asked(self, pool: PlacingPool, address: str) -> None:
        """Raise if a better one is known that was not asked."""
        lead, now = pool.lead, self._run.agenda.now
        place = lead, address
        comes = place not in self._known and address not in self._first.setdefault(lead, frozenset(pool.sighted))
        self._known.add(place)
        self._asked.add(place)
        if comes or lead != self._run.leads[-1].name or lead not in self._copies:
            return  # where no worker may be missing; by one that knows less and is not heeded, or takes over just now
        copies = self._copies[lead]  # before this event
        rank = address in copies and address in pool.copies, self._failed[place]
        for other in pool.sighted:
            if self._is_free(pool, other, now) and (self._has_copy(pool, other), self._failed[lead, other]) < rank:
                known = {one: self._failed[lead, one] for one in (address, other)}
                raise violated("S13", f"{lead} asks {address} before {other}; failures {known}, copies {copies}")

    def _has_copy(self, pool: PlacingPool, address: str) -> bool:
        return address in self._copies[pool.lead] or address in pool.copies

    def _is_free(self, pool: PlacingPool, address: str, now: float) -> bool:
        place, rests_s = (pool.lead, address), self._run.supervision.share_after_s
        silent = now - self._silent.get(place, -rests_s) < rests_s
        taken = address in pool.addresses or address in pool.unavailable.addresses or place in self._asked
        return not (taken or silent or self._failed[place] >= MOST_TRIES)

    def on_answered(self, pool: PlacingPool, address: str, *, fits: bool) -> None:
        """Note that it was not asked in vain, or that it need not be asked again for a while."""
        self._asked.discard((pool.lead, address))
        if not fits:
            self._silent[pool.lead, address] = self._run.agenda.now

    def on_starting(self, pool: PlacingPool, address: str) -> None:
        """Raise if a role was lost there since it was asked, and nothing was heard from there since."""
        if address in pool.unavailable.addresses:
            raise violated("S13", f"{pool.lead} starts a gradient worker at {address}, where a role was lost")

    def on_not_started(self, pool: PlacingPool, address: str) -> None:
        """Raise if another was tried where too many could not be started."""
        self._failed[pool.lead, address] += 1
        tries = self._failed[pool.lead, address]
        if tries > MOST_TRIES:
            raise violated("S13", f"{pool.lead} tries to start a gradient worker at {address} for the {tries}th time")

    def on_left(self, pool: PlacingPool, address: str, reason: str) -> None:
        """Raise if its process counts as lost from now on."""
        before = self._unavailable.get(pool.lead, frozenset())
        if reason != PROCESS_ENDS and address in pool.unavailable.addresses - before:
            raise violated("S13", f"{pool.lead} gives {address} up, of which a gradient worker left: {reason}")
