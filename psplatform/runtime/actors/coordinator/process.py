"""What the parts of a coordinator's process may ask of it: it is made of them, so they cannot name its class."""

from __future__ import annotations

from typing import Any, Protocol

from psplatform.core.protocol.place_messages import CoordinatorAt
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer
from psplatform.runtime.program import Program


class CoordinatorProcess(Protocol):
    """The process as each of its parts sees it."""

    program: Program

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, and execute what it answers."""

    def new_background(self) -> Background:
        """Return what does work that nothing waits for, and tells of it if it fails."""


class Employer(CoordinatorProcess, Protocol):
    """The process as seen by its parts that make, watch and address the run's other actors.

    Attributes
    ----------
    peer
        Where this process is.
    connect
        The way to any other.
    term
        The coordinator's.
    sender
        Under which name its coordinator speaks.
    unavailable
        The processes in which no role is placed for now.
    """

    peer: Peer
    connect: Connect
    term: int
    sender: str
    unavailable: UnavailableProcesses

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log that no event has led to."""

    def on_actor_made(self, part: str, name: str, peer: Peer, shard: int = -1) -> None:
        """Add an actor to those that a standby is told of."""

    def released(self, name: str) -> None:
        """Remove an actor from those that a standby is told of."""

    def whereabouts(self) -> CoordinatorAt:
        """Return what tells an actor whose coordinator is lost where the new one is."""

    def on_processes_changed(self) -> None:
        """Make what could not be made before, if it can be now."""

    def on_refused(self) -> None:
        """Stop: an actor obeys another coordinator."""
