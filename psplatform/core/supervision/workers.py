"""The gradient workers and the evaluator of a run: which process is given which of these roles, and who is lost: pure.

A gradient worker that is lost is replaced by a Dask worker that has neither a copy of a shard nor a gradient worker of
this run.  Where there is none, by one that has a copy: soon, if no gradient worker is left and the run would end;
later, if the run goes on with fewer, for roles share processes where there are not enough, as at the start.  A Dask
worker that comes later takes part, up to the job's `max_workers`.

What is decided here is executed by the driver; what comes of it is said here by name or by address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from psplatform.core.protocol.events import EvaluatorDied, MemberDied, MemberLost
from psplatform.core.protocol.messages import ENDING, JOIN_AGAIN, PROCESS_ENDS, SLOTS_TAKEN
from psplatform.core.supervision.decisions import (
    WORKER,
    AskOfDeath,
    AwaitWaking,
    Decision,
    Examine,
    LetGo,
    Note,
    ProcessesCame,
    ProcessLeft,
    Report,
    Rules,
    StartWorker,
    Surroundings,
)
from psplatform.core.supervision.evaluator import EvaluatorSupervisor
from psplatform.core.supervision.leases import Leases
from psplatform.core.supervision.placement import Placement, Process
from psplatform.core.supervision.shortage import Shortage
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.errors import ProcessDied, PsplatformError

_TRIES_PER_PROCESS: Final = 3
"""A process in which so many workers could not start, or gave up, is left alone."""

_NO_FAILURES: Final = (JOIN_AGAIN, SLOTS_TAKEN, ENDING)
"""Why workers leave that could go on in the same process."""

_LEFT: Final = "its Dask worker left the cluster"


class WorkerSupervisor:
    """Decides who computes gradients and who evaluates.

    What a method returns is to be done now, in this order.

    Parameters
    ----------
    unavailable
        Where no role is placed: shared with those who supervise the run's other actors.

    Attributes
    ----------
    workers
        Address of each gradient worker's process, by name; those that are only being made included.
    """

    def __init__(self, rules: Rules, around: Surroundings, unavailable: UnavailableProcesses) -> None:
        self._rules = rules
        self._around = around
        self._unavailable = unavailable
        self.workers: dict[str, str] = {}
        self._first: set[str] = set()
        self._shortage = Shortage(rules)
        self._evaluator = EvaluatorSupervisor(rules, around)
        self._known: dict[str, Process] = {}
        self._seen: set[str] = set()
        self._present: set[str] | None = None
        self._examined: set[str] = set()
        self._again: set[str] = set()
        self._unfit: set[str] = set()
        self._newcomers: set[str] = set()
        self._failed: dict[str, int] = {}
        self._leases = Leases(rules.lease_s)
        self._ask_again_at = 0.0
        self._now = 0.0
        self._fill_at_next_look = False

    # --- who is there ---

    @property
    def evaluator(self) -> str:
        """The evaluator's name, empty while there is none."""
        return self._evaluator.name

    @property
    def addresses(self) -> set[str]:
        """Processes with a gradient worker."""
        return set(self.workers.values())

    @property
    def missing(self) -> set[str]:
        """The gradient workers placed at the start that have not said anything yet."""
        return self._first & self._shortage.unheard(self.workers)

    @property
    def has_room(self) -> bool:
        """Whether the job allows one more gradient worker."""
        return self._rules.most is None or len(self.workers) < self._rules.most

    def begin(self, placement: Placement) -> list[Decision]:
        """Start what a run begins with."""
        started = [self._start_worker(address) for address in placement.workers]
        self._first = set(self.workers)
        return [*started, self._evaluator.start(placement.evaluator)]

    def adopt(self, workers: Mapping[str, str], evaluator: tuple[str, str] | None, now: float) -> None:
        """Go on with those that a coordinator before has started."""
        self.workers.update(workers)
        if evaluator is not None:
            self._evaluator.adopt(*evaluator)
            self._leases.renew(evaluator[0], now)

    def hears(self, name: str, now: float) -> bool:
        """Take a sign of life; return whether it comes from one of those."""
        if name not in self.workers and (not name or name != self.evaluator):
            return False
        self._leases.renew(name, now)
        if self._shortage.hears(name):
            self._shortage.note(self.workers, now)
        self._evaluator.opened |= name == self.evaluator
        return True

    def _start_worker(self, address: str) -> StartWorker:
        name = self._around.next_name(WORKER)
        self.workers[name] = address
        self._shortage.expect(name)
        return StartWorker(name, address)

    # --- losing gradient workers ---

    def dismiss(self, name: str) -> list[Decision]:
        """Let go of a gradient worker, and look for another."""
        if name not in self.workers:
            return []
        return [self._let_go(name), *self.fill()]

    def _let_go(self, name: str) -> LetGo:
        self._leases.forget(name)
        self._unavailable.lose(name, self.workers.pop(name))
        return LetGo(name)

    def on_leave(self, name: str, reason: str) -> list[Decision]:
        """Look for another in the place of a gradient worker that leaves by itself.

        Its process can take another role, unless it is about to end.
        """
        if name not in self.workers:
            return []
        address = self.workers[name]
        if reason == PROCESS_ENDS:
            self._unavailable.leave(address)
            return []  # it goes when the coordinator dismisses it
        if reason not in _NO_FAILURES:
            self._failed[address] = self._failed.get(address, 0) + 1
        del self.workers[name]
        self._leases.forget(name)
        return [LetGo(name), *self.fill()]

    def on_lost(self, name: str, reason: str) -> list[Decision]:
        """Replace a gradient worker that is lost."""
        return [*self._lose(name, reason), *self.fill()] if name in self.workers else []

    def _lose(self, name: str, reason: str) -> list[Decision]:
        asked = AskOfDeath(name, self.workers[name])
        # Before it has joined, the coordinator does not know it and dismisses nobody.
        return [Report(MemberLost(name, reason)), self._let_go(name), asked]

    def on_not_started(self, name: str, error: PsplatformError) -> list[Decision]:
        """Try elsewhere, or again, what could not be started."""
        address = self.workers.pop(name, "")
        if not address:
            return []
        self._failed[address] = self._failed.get(address, 0) + 1
        said = Note(f"no worker could be started at {address}: {error}")
        return [said, Report(MemberLost(name, str(error))), AskOfDeath(name, address), *self.fill()]

    def on_death(self, asked: AskOfDeath, error: PsplatformError | None, now: float) -> list[Decision]:
        """Learn of what a lost process has died; ``None`` where that cannot be seen, or it has not."""
        self._evaluator.on_death(asked.name, now, by_itself=isinstance(error, ProcessDied))
        if not isinstance(error, ProcessDied):
            return []
        died = EvaluatorDied(error, asked.opened) if asked.is_evaluator else MemberDied(asked.name, error)
        return [Report(died)]

    # --- the evaluator ---

    def on_evaluator_lacking(self, name: str) -> list[Decision]:
        """Start an evaluator elsewhere whose process lacks what it needs."""
        if not name or name != self.evaluator:
            return []
        return [self._evaluator.move(self._usable, self.addresses)]

    def on_evaluator_lost(self, name: str, reason: str) -> list[Decision]:
        """Let go of an evaluator that is lost; another is started once it was asked of what it died."""
        if not name or name != self.evaluator:
            return []
        self._leases.forget(name)
        self._unavailable.lose(name, self._evaluator.address)
        return self._evaluator.lose(reason)

    @property
    def _usable(self) -> set[str]:
        return set(self._known) - self._unavailable.addresses - set(self._around.left_out)

    # --- the cluster ---

    def on_sight(self, processes: Sequence[Process], present: Collection[str], now: float) -> list[Decision]:
        """Learn which processes can take a role, and the addresses of all there are."""
        first, before = not self._seen, self._present
        if before is None:
            before = {*self.addresses, *self._around.copies, self._evaluator.address} - {""}
        self._known, self._present, self._now = {one.address: one for one in processes}, set(present), now
        came = self._known.keys() - self._seen
        self._seen |= came
        decided: list[Decision] = []
        for address in sorted(before - self._present):
            decided += [*self._lose_all(address, _LEFT), ProcessLeft(address, _LEFT)]
        if first:
            if self._evaluator.was_never_wanted:
                decided.append(self._evaluator.start_anywhere(self._usable, self.addresses))
        elif came:
            self._newcomers |= came
            decided.append(ProcessesCame())
        self._shortage.note(self.workers, now)
        fill, self._fill_at_next_look = self._fill_at_next_look, False
        if first or decided or fill:
            decided += self.fill()  # at first: a coordinator before this one may have been about to
        elif self._shares and not self._examined:
            decided += self._ask_on()
        # One with a copy waits for its turn: it might answer before others that come with it and have none.
        newcomers = self._newcomers - self._examined - set(self._around.copies)
        decided += self._examine([one for one in self._known if one in newcomers])
        return [*decided, *self._evaluator.replace(self._usable, self.addresses, now)]

    def on_process_ended(self, address: str, reason: str) -> list[Decision]:
        """Report the gradient workers and the evaluator of a process that has ended, as another of its actors shows.

        Replacements are looked for at the next look at the cluster: first the run must go on.
        """
        lost = list(self._lose_all(address, reason))
        self._fill_at_next_look |= bool(lost)
        return lost

    def _lose_all(self, address: str, reason: str) -> Iterator[Decision]:
        for name in [name for name, place in self.workers.items() if place == address]:
            yield from self._lose(name, reason)
        if self._evaluator.address == address:
            yield from self.on_evaluator_lost(self.evaluator, reason)

    def fill(self) -> list[Decision]:
        """Look for gradient workers in the place of those that are missing."""
        self._unfit.clear()
        self._again |= self._examined  # what they are asked now may have another answer soon
        return self._look_on()

    def _look_on(self) -> list[Decision]:
        """Examine as many processes as workers are missing, the others when these do not fit."""
        missing = self._rules.workers - len(self.workers) - len(self._examined)
        if missing <= 0 or not self._around.runs:
            return []
        taken, copies = self._taken() | self._unfit | self._examined, self._around.copies
        free = [one for one in self._known if one not in taken]
        best = sorted(free, key=lambda one: (one in copies, self._failed.get(one, 0)))
        return self._examine(best[:missing])

    def _ask_on(self) -> list[Decision]:
        """Look for gradient workers that are missing for long, now and then where nothing fitted before."""
        if self._now >= self._ask_again_at:
            self._ask_again_at = self._now + self._rules.share_after_s
            self._unfit.clear()
        return self._look_on()

    def _examine(self, addresses: Sequence[str]) -> list[Decision]:
        self._examined.update(addresses)
        return [Examine(self._known[one]) for one in addresses]

    def on_examined(self, address: str, *, fits: bool) -> list[Decision]:
        """Start a gradient worker in a process that can take one, if it is still wanted there."""
        self._examined.discard(address)
        asked_again = address in self._again
        self._again.discard(address)
        if address not in self._known:
            return self._look_on()  # a newcomer is examined again when it is back
        is_wanted = self.has_room if address in self._newcomers else len(self.workers) < self._rules.workers
        self._newcomers.discard(address)
        free = self._around.runs and address not in self._taken()
        if fits and free and is_wanted:
            return [self._start_worker(address), *self._look_on()]
        if not fits and not asked_again:
            self._unfit.add(address)
        return self._look_on()

    @property
    def _shares(self) -> bool:
        return self._shortage.lets_share(self.workers, self._now)

    def _taken(self) -> set[str]:
        given_up = {address for address, failures in self._failed.items() if failures >= _TRIES_PER_PROCESS}
        taken = self.addresses | self._unavailable.addresses | given_up
        return taken if self._shares else taken | set(self._around.copies)

    # --- silence ---

    def on_silence(self, now: float) -> list[Decision]:
        """Replace those whose lease is over."""
        decided: list[Decision] = []
        for name in self._leases.expire(now):
            lose = self.on_evaluator_lost if name == self.evaluator else self.on_lost
            lost = lose(name, f"silent for {self._rules.lease_s:g} s")
            decided += [AwaitWaking(name), *lost] if lost else []
        return decided
