"""Lost gradient workers are replaced as long as there is a Dask worker for them, and where they belong (S13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from psplatform.core.coordination.ending import Phase
from psplatform.memory import MemoryRun
from psplatform.memory.processes.machines import Machines
from psplatform.simulation.faults.checks.histories import violated

_LIMIT_S: Final = 8.0
"""More than it takes to notice a loss, to ask a process that does not answer, and to ask the next."""


_SETTLED_S: Final = 2.0
"""Seconds after which it is known that a process is free."""

_ROUNDING_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class _Naming:
    """What there was when a gradient worker was named: where it goes was decided by that.

    Attributes
    ----------
    alone
        Processes that were known to be free and to have no copy of a shard.
    early
        Whether there had been enough gradient workers until a moment before.
    """

    at: float
    alone: list[str]
    early: bool


@dataclass(frozen=True, slots=True)
class _Evaluator:
    """The evaluator of a coordinator, or when it was lost, and where it was."""

    name: str = ""
    lead: str = ""
    lost_at: float = 0.0
    address: str = ""


class Replacement:
    """Checks, where roles are placed, that a missing gradient worker is started where there is a process for it.

    That is one that runs, does not end in good order, and has no gradient worker: at once if it has no copy of a shard
    either, else when there has been no other for a while.  And that there are no more than the job allows, one in a
    process at most, beside a copy only where there is nothing else; and that an evaluator which killed its process is
    made again later, apart from servers.

    Parameters
    ----------
    most
        Gradient workers at most; ``None`` for any number.
    is_worth_trying
        Whether the coordinator may still try to start one in a process: not where too many could not be started.
    """

    def __init__(
        self,
        run: MemoryRun,
        machines: Machines,
        most: int | None,
        is_worth_trying: Callable[[str], bool] = lambda address: True,
    ) -> None:
        self._run, self._machines, self._most = run, machines, most
        self._is_worth_trying = is_worth_trying
        self._lead = ""
        self._seen: frozenset[str] = frozenset()
        self._placed: set[str] = set()
        self._named: dict[str, _Naming] = {}
        self._complete_at = 0.0
        self._shared: dict[tuple[str, str], float] = {}
        self._evaluator = _Evaluator()
        self._since: dict[tuple[str, bool], float] = {}

    def check(self, quiet_at: float) -> None:
        """Raise if one has been free for long, and a worker missing, since the last fault was over at `quiet_at`."""
        now, workers = self._run.agenda.now, self._run.leads[-1].workers
        names = frozenset(workers.names)
        lead = self._run.leads[-1].name
        # One that takes over goes on with all that it knows of, those that the one before has given up included.
        if lead == self._lead and names - self._seen:
            self._check_number(names)
        self._seen, self._lead = names, lead
        self._check_places(names, now)
        self._check_evaluator(workers.evaluator, now)
        free = self._free() if now > quiet_at and self._is_missing_some else []
        self._since = {one: self._since.get(one, now) for one in free}
        for (address, shared), since in self._since.items():
            if now - since > _LIMIT_S + (self._run.supervision.share_after_s if shared else 0.0):
                there, wanted = len(self._present), self._run.plan.workers
                has = "has no gradient worker" if shared else "is free"
                raise violated("S13", f"{there} of {wanted} workers are there, and {address} {has} since {since:.2f}")

    def _check_number(self, names: frozenset[str]) -> None:
        if self._most is not None and len(names) > self._most:
            raise violated("S13", f"there are {len(names)} gradient workers, the job allows {self._most}")

    def _check_places(self, names: frozenset[str], now: float) -> None:
        run, of = self._run, self._run.processes.of
        lead = run.leads[-1].name
        self._shared = {(lead, one): self._shared.get((lead, one), now) for one in self._copies}
        for name in names - self._named.keys():
            self._named[name] = self._name(now)
        # One is given its process a moment after it was named.
        there = names & run.workers.nodes.keys()
        # One that has not joined may not have been heard: to its coordinator, it is still missing.
        if len(there & self._placed & self._members) >= run.plan.workers:
            self._complete_at = now
        for name in sorted(there - self._placed):
            self._placed.add(name)
            place, others = of(name), {of(one) for one in there - {name}}
            if place in others:
                raise violated("S13", f"gradient workers share {place}")
            named = self._named[name]
            # Of a copy that is new, or that only a coordinator before has made, this one may not have known.
            if self._shared.get((lead, place), now) < named.at - _SETTLED_S and (named.alone or named.early):
                raise violated("S13", f"{name} shares {place} with a copy of a shard, free are {named.alone}")

    def _name(self, now: float) -> _Naming:
        alone = [one for (one, shared), since in self._since.items() if not shared and since < now - _SETTLED_S]
        early = self._complete_at > 0 and now - self._complete_at < self._run.supervision.deserted_s
        return _Naming(now, alone, early)

    def _check_evaluator(self, name: str, now: float) -> None:
        """Raise if one is made at once in the place of one that was lost, or beside a server where that killed it."""
        run, before = self._run, self._evaluator
        if before.address and not self._machines.has_nanny(before.address):
            # Where the host is lost as well, nobody can tell of what it died.
            before = self._evaluator = replace(before, address="")
        if name == before.name or (name and name not in run.evaluators):
            return
        lead = run.leads[-1].name
        if not name:
            self._evaluator = _Evaluator("", lead, now, run.processes.of(before.name))
            return
        self._evaluator = _Evaluator(name, lead)
        if before.name or before.lead != lead or len(run.leads) > 1:
            return  # the first, or a coordinator has taken over: it may not know of what the one before was asking
        waits_s, place = 2 * run.supervision.look_s, run.processes.of(name)
        if now - before.lost_at < waits_s - _ROUNDING_S:
            raise violated("S13", f"{name} is made {now - before.lost_at:.2f} s after another was lost")
        serving = self._copies | {run.processes.of(lead)}
        died = before.address in run.processes.dead and not run.retirements.began(before.address)
        if died and place in serving and now - before.lost_at < waits_s + run.supervision.deserted_s:
            raise violated("S13", f"{name} is made beside a server, though the one before has killed its process")

    @property
    def _copies(self) -> set[str]:
        return {self._run.processes.of(copy) for one in self._run.coordinator.state.shards for copy in one.copies}

    @property
    def _is_missing_some(self) -> bool:
        run, lead = self._run, self._run.leads[-1]
        if run.processes.is_dead(lead.name) or lead.lead.replaced:
            return False
        runs = lead.lead.coordinator.ending.phase is Phase.RUNNING
        return runs and len(self._present) < run.plan.workers

    @property
    def _present(self) -> set[str]:
        """The workers that live and are the coordinator's."""
        return set(self._run.worker_names) & (self._members | set(self._run.leads[-1].workers.names))

    @property
    def _members(self) -> set[str]:
        return {one.name for one in self._run.leads[-1].lead.coordinator.state.roster.members()}

    def _free(self) -> list[tuple[str, bool]]:
        """Return the processes without gradient worker, and whether they have a copy of a shard."""
        run, of = self._run, self._run.processes.of
        copies = self._copies
        taken = {of(name) for name in self._present}
        return [
            (address, address in copies)
            for address in self._machines.addresses
            if address not in taken and not run.processes.is_stopped(address) and not run.retirements.began(address)
            if self._is_worth_trying(address)
        ]
