"""What a role asks its driver to do.  Their results come back as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psplatform.core.messages import Contribution, Ticket
from psplatform.errors import PsplatformError


@dataclass(frozen=True, slots=True)
class Role:
    """An addressee: the coordinator, the server of a shard, or a member by name."""

    kind: str
    name: str = ""

    @classmethod
    def server(cls, shard: int) -> Role:
        """Address the server of `shard`."""
        return cls("server", str(shard))

    @classmethod
    def member(cls, name: str) -> Role:
        """Address the gradient worker that joined under `name`."""
        return cls("member", name)


COORDINATOR = Role("coordinator")


@dataclass(frozen=True, slots=True)
class Send:
    """Deliver `message`; the driver retries until it is answered or the addressee is declared lost."""

    to: Role
    message: Any


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Report `TimerFired(tag)` at time `at`; a timer of the same tag is replaced."""

    tag: str
    at: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer set under `tag`, if any."""

    tag: str


@dataclass(frozen=True, slots=True)
class Log:
    """Append a record to the run's event log."""

    record: dict[str, Any]


# --- the coordinator's own -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Fetch the newest version, at least `version`, and measure it on held-out data; answer with `Evaluated`.

    Without `measure` it is only fetched, and loss and accuracy are ``None``.
    """

    version: int
    measure: bool


@dataclass(frozen=True, slots=True)
class SaveModel:
    """Put the parameters last evaluated, of `version`, into the store; answer with `ModelSaved`."""

    version: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """A member is out: whatever it sends from now on is void."""

    member: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over.

    Attributes
    ----------
    outcome
        ``reached target``, ``updates``, ``epochs``, ``seconds``, ``stopped`` or ``failed``.
    failure
        For ``failed``: what the waiting program gets raised.
    """

    outcome: str
    detail: str
    failure: PsplatformError | None = None


# --- a worker's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the gradient `sequence` of `slot` on the parameters just pulled."""

    slot: int
    sequence: int
    ticket: Ticket | None


@dataclass(frozen=True, slots=True)
class CancelCompute:
    """Interrupt the computation of `sequence`."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Expose:
    """Let every shard reach the gradient of `sequence`; answer with `Reachable`."""

    slot: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Depart:
    """The session is over."""

    reason: str


# --- a server's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gather:
    """Average these gradients, in this order, into scratch."""

    position: int
    contributions: tuple[Contribution, ...]
    norms: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """Compute the state after `position` beside the visible one."""

    position: int
    factor: float
    rate: float


@dataclass(frozen=True, slots=True)
class Publish:
    """Make the staged state visible as `version`."""

    position: int
    version: int


Effect = (
    Send
    | SetTimer
    | CancelTimer
    | Log
    | Evaluate
    | SaveModel
    | Dismiss
    | Finish
    | Compute
    | CancelCompute
    | Expose
    | Depart
    | Gather
    | Stage
    | Publish
)
