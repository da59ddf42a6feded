"""What supervising gradient workers and the evaluator keeps to, what it sees of the run, and what it asks for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from psplatform.core.supervision.placement import Process

Part = Literal["worker", "evaluator"]
WORKER: Final = "worker"
EVALUATOR: Final = "evaluator"
"""The names of evaluators begin with it: a server answers them without holding anybody up."""


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
