"""The gradient workers and the evaluator of a run: which process is given which of these roles, and who is lost: pure.

A gradient worker that is lost is replaced by a Dask worker that has neither a copy of a shard nor a gradient worker of
this run.  Where there is none, by one that has a copy: soon, if no gradient worker is left and the run would end;
later, if the run goes on with fewer, for roles share processes where there are not enough, as at the start.  A Dask
worker that comes later takes part, up to the job's `max_workers`.  The evaluator is replaced wherever there is a
process, but for a while apart from servers where one has died by itself: what killed it would kill them next.

What is decided here is executed by the driver; what comes of it is said here by name or by address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from psplatform.core.protocol.events import EvaluationLost, EvaluatorDied, MemberDied, MemberLost
from psplatform.core.protocol.messages import ENDING, JOIN_AGAIN, PROCESS_ENDS, SLOTS_TAKEN
from psplatform.core.supervision.leases import Leases
from psplatform.core.supervision.placement import Placement, Process
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.errors import ProcessDied, PsplatformError

Part = Literal["worker", "evaluator"]
WORKER: Final = "worker"
EVALUATOR: Final = "evaluator"
"""The names of evaluators begin with it: a server answers them without holding anybody up."""

_TRIES_PER_PROCESS: Final = 3
"""A process in which so many workers could not start, or gave up, is left alone."""

_NO_FAILURES: Final = (JOIN_AGAIN, SLOTS_TAKEN, ENDING)
"""Why workers leave that could go on in the same process."""

_LEFT: Final = "its Dask worker left the cluster"


# --- what the driver is asked for ---


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Make a gradient worker there; `WorkerSupervisor.on_not_started` answers where that fails."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class StartEvaluator:
    """Make an evaluator there; `WorkerSupervisor.on_evaluator_lost`, or `on_evaluator_lacking`, says that it failed."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class Examine:
    """Find out whether the process can take a gradient worker; `WorkerSupervisor.on_examined` answers."""

    process: Process


@dataclass(frozen=True, slots=True)
class LetGo:
    """Close the way to an actor, and let go of it."""

    name: str


@dataclass(frozen=True, slots=True)
class AskOfDeath:
    """Find out of what the process of a lost actor has died; `WorkerSupervisor.on_death` answers."""

    name: str
    address: str
    is_evaluator: bool = False
    opened: bool = True


@dataclass(frozen=True, slots=True)
class AwaitWaking:
    """Say `UnavailableProcesses.heard` once the process of an actor that fell silent answers anything."""

    name: str


@dataclass(frozen=True, slots=True)
class Report:
    """Hand an event to the coordinator."""

    event: Any


@dataclass(frozen=True, slots=True)
class Note:
    """Write words into the run's log."""

    text: str


@dataclass(frozen=True, slots=True)
class ProcessLeft:
    """Tell those who supervise the run's other actors that a process is gone."""

    address: str
    reason: str


@dataclass(frozen=True, slots=True)
class ProcessesCame:
    """Try again what could not be done before for want of processes."""


Decision = (
    StartWorker
    | StartEvaluator
    | Examine
    | LetGo
    | AskOfDeath
    | AwaitWaking
    | Report
    | Note
    | ProcessLeft
    | ProcessesCame
)


# --- what decides ---


@dataclass(frozen=True, slots=True)
class Rules:
    """How many gradient workers there shall be, and how long what is waited for; times in seconds.

    Attributes
    ----------
    workers
        While there are fewer, lost ones are replaced.
    most
        As many there are at most, with those that come later; ``None`` for any number.
    lease_s
        Silence after which one of them is lost.
    deserted_s
        After so long without any gradient worker, one is started beside a copy of a shard; an evaluator that died by
        itself waits as long for a process apart from servers.
    share_after_s
        After so long with fewer than `workers`, one is; processes that did not fit are asked again as often.
    replace_after_s
        Another evaluator is made so long after the end of the last: first the run must go on.
    """

    workers: int
    most: int | None
    lease_s: float
    deserted_s: float
    share_after_s: float
    replace_after_s: float


class Surroundings(Protocol):
    """What else there is of the run."""

    @property
    def runs(self) -> bool:
        """Whether it has begun and is not ending: as long as it is so, workers are placed."""

    @property
    def home(self) -> str:
        """Address of the coordinator's process."""

    @property
    def copies(self) -> Collection[str]:
        """Addresses of processes with a copy of a shard."""

    @property
    def left_out(self) -> Collection[str]:
        """Addresses of processes that lack what the run needs."""

    def next_name(self, role: str) -> str:
        """Return a name that no actor of the run has had."""


@dataclass(slots=True)
class _Evaluator:
    """The evaluator, or what is known of the next one.

    Attributes
    ----------
    name, address
        Empty while there is none.
    opened
        Whether it has given a sign of life.
    lost
        The one before, as long as it is not known of what it died.
    wanted_at
        When another is to be started.
    apart_until
        Until when it waits for a process apart from servers: not at all where others have ended the last.
    """

    name: str = ""
    address: str = ""
    opened: bool = False
    lost: str = ""
    wanted_at: float = float("inf")
    apart_until: float = float("-inf")


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
        self._missing: set[str] = set()
        self._evaluator = _Evaluator()
        self._known: dict[str, Process] = {}
        self._seen: set[str] = set()
        self._present: set[str] | None = None
        self._examined: set[str] = set()
        self._again: set[str] = set()
        self._unfit: set[str] = set()
        self._newcomers: set[str] = set()
        self._failed: dict[str, int] = {}
        self._leases = Leases(rules.lease_s)
        self._deserted_at = self._short_since = float("inf")
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
        return self._missing & self.workers.keys()

    def begin(self, placement: Placement) -> list[Decision]:
        """Start what a run begins with."""
        started = [self._start_worker(address) for address in placement.workers]
        self._missing = set(self.workers)
        return [*started, self._start_evaluator(placement.evaluator)]

    def adopt(self, workers: Mapping[str, str], evaluator: tuple[str, str] | None, now: float) -> None:
        """Go on with those that a coordinator before has started."""
        self.workers.update(workers)
        if evaluator is not None:
            self._evaluator = _Evaluator(*evaluator, opened=True)
            self._leases.renew(evaluator[0], now)

    def hears(self, name: str, now: float) -> bool:
        """Take a sign of life; return whether it comes from one of those."""
        if name not in self.workers and (not name or name != self.evaluator):
            return False
        self._leases.renew(name, now)
        self._missing.discard(name)
        self._evaluator.opened |= name == self.evaluator
        return True

    def _start_worker(self, address: str) -> StartWorker:
        name = self._around.next_name(WORKER)
        self.workers[name] = address
        self._note_shortage()
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
        by_itself = isinstance(error, ProcessDied)
        if asked.name == self._evaluator.lost:
            wanted_at = now + self._rules.replace_after_s
            apart_until = wanted_at + self._rules.deserted_s if by_itself else wanted_at
            self._evaluator = _Evaluator(wanted_at=wanted_at, apart_until=apart_until)
        if not isinstance(error, ProcessDied):
            return []
        died = EvaluatorDied(error, asked.opened) if asked.is_evaluator else MemberDied(asked.name, error)
        return [Report(died)]

    # --- the evaluator ---

    def _start_evaluator(self, address: str) -> StartEvaluator:
        self._evaluator = _Evaluator(self._around.next_name(EVALUATOR), address)
        return StartEvaluator(self.evaluator, address)

    def on_evaluator_lacking(self, name: str) -> list[Decision]:
        """Start an evaluator elsewhere whose process lacks what it needs."""
        if not name or name != self.evaluator:
            return []
        self._evaluator.address = self._place_for_evaluator(apart=False)
        return [StartEvaluator(name, self._evaluator.address)]

    def on_evaluator_lost(self, name: str, reason: str) -> list[Decision]:
        """Let go of an evaluator that is lost; another is started once it was asked of what it died."""
        if not name or name != self.evaluator:
            return []
        lost = self._evaluator
        self._leases.forget(name)
        self._unavailable.lose(name, lost.address)
        self._evaluator = _Evaluator(lost=name)
        asked = AskOfDeath(name, lost.address, is_evaluator=True, opened=lost.opened)
        return [LetGo(name), Report(EvaluationLost(reason)), asked]

    def _replace_evaluator(self, now: float) -> list[Decision]:
        wanted = self._evaluator
        if wanted.name or now < wanted.wanted_at:
            return []
        if now < wanted.apart_until and not self._apart_from_servers:
            return []  # a nanny may start a process that no server shares with it
        return [self._start_evaluator(self._place_for_evaluator(apart=wanted.apart_until > wanted.wanted_at))]

    @property
    def _usable(self) -> set[str]:
        return set(self._known) - self._unavailable.addresses - set(self._around.left_out)

    @property
    def _apart_from_servers(self) -> set[str]:
        return self._usable - set(self._around.copies) - {self._around.home}

    def _place_for_evaluator(self, *, apart: bool) -> str:
        busy, home = self.addresses, self._around.home
        if apart and self._apart_from_servers:
            return min(self._apart_from_servers, key=lambda one: (one in busy, one))
        serving = {*self._around.copies, home}
        return min(self._usable - busy, key=lambda one: (one in serving, one), default=home)

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
            decided += self._lose_process(address)
        if first:
            if not self.evaluator and not self._evaluator.lost and self._evaluator.wanted_at == float("inf"):
                decided.append(self._start_evaluator(self._place_for_evaluator(apart=False)))
        elif came:
            self._newcomers |= came
            decided.append(ProcessesCame())
        self._note_shortage()
        fill, self._fill_at_next_look = self._fill_at_next_look, False
        if first or decided or fill:
            decided += self.fill()  # at first: a coordinator before this one may have been about to
        elif self._shares and not self._examined:
            decided += self._ask_on()
        newcomers = [one for one in self._known if one in self._newcomers and one not in self._examined]
        return [*decided, *self._examine(newcomers), *self._replace_evaluator(now)]

    def _note_shortage(self) -> None:
        there, now = len(self.workers), self._now
        self._deserted_at = float("inf") if there else min(self._deserted_at, now)
        self._short_since = float("inf") if there >= self._rules.workers else min(self._short_since, now)

    def on_process_ended(self, address: str, reason: str) -> list[Decision]:
        """Report the gradient workers and the evaluator of a process that has ended, as another of its actors shows.

        Replacements are looked for at the next look at the cluster: first the run must go on.
        """
        lost = list(self._lose_all(address, reason))
        self._fill_at_next_look |= bool(lost)
        return lost

    def _lose_process(self, address: str) -> Iterator[Decision]:
        yield from self._lose_all(address, _LEFT)
        yield ProcessLeft(address, _LEFT)

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
        free = [one for one in self._known if one not in taken and self._is_worth_trying(one)]
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
        limit: float = self._rules.workers
        if address in self._newcomers:
            limit = float("inf") if self._rules.most is None else self._rules.most
            self._newcomers.discard(address)
        free = self._around.runs and address not in self._taken() and self._is_worth_trying(address)
        if fits and free and len(self.workers) < limit:
            return [self._start_worker(address), *self._look_on()]
        if not fits and not asked_again:
            self._unfit.add(address)
        return self._look_on()

    @property
    def _shares(self) -> bool:
        """Whether gradient workers have been missing for so long that they share processes with copies."""
        deserted = self._now - self._deserted_at >= self._rules.deserted_s
        return deserted or self._now - self._short_since >= self._rules.share_after_s

    def _taken(self) -> set[str]:
        taken = self.addresses | self._unavailable.addresses
        return taken if self._shares else taken | set(self._around.copies)

    def _is_worth_trying(self, address: str) -> bool:
        return self._failed.get(address, 0) < _TRIES_PER_PROCESS

    # --- silence ---

    def on_silence(self, now: float) -> list[Decision]:
        """Replace those whose lease is over."""
        decided: list[Decision] = []
        for name in self._leases.expire(now):
            lose = self.on_evaluator_lost if name == self.evaluator else self.on_lost
            lost = lose(name, f"silent for {self._rules.lease_s:g} s")
            decided += [AwaitWaking(name), *lost] if lost else []
        return decided
