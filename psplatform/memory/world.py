"""What takes how long in the world that a run in memory lives in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from psplatform.core.protocol.effects import Role, Send
from psplatform.core.protocol.messages import Pulled
from psplatform.memory.agenda import Agenda

Deliver = Callable[[Role, Role, Any], list[float]]


class World(Protocol):
    """The durations of everything that is not decided by a role; all in seconds."""

    def compute_s(self, slot: int, sequence: int) -> float:
        """Return how long gradient `sequence` of `slot` takes."""

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Return the delays of the copies of a message that is sent now: one copy at least."""

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Return how long a gradient that is exposed now takes until the server of `shard` can reach it."""

    def gather_s(self, shard: int, gradients: int) -> float:
        """Return how long the server of `shard` takes to average so many gradients."""

    def evaluation_s(self) -> float:
        """Return how long an evaluation takes once its version is fetched."""

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Return until when a claim that the process makes now is not heard, and how long its answer takes then."""


@dataclass(frozen=True, slots=True)
class Ideal:
    """A world in which only computing takes time, and messages where a test says so.

    Parameters
    ----------
    compute
        Seconds that gradient `sequence` of `slot` takes.
    send
        Given sender, addressee and message, the delays of its copies.
    """

    compute: Callable[[int, int], float]
    send: Deliver
    evaluate_s: float = 0.0

    def compute_s(self, slot: int, sequence: int) -> float:
        """Ask the function."""
        return self.compute(slot, sequence)

    def deliver(self, sender: Role, to: Role, message: Any, now: float) -> list[float]:
        """Ask the function."""
        return self.send(sender, to, message)

    def reach_s(self, member: str, shard: int, now: float) -> float:
        """Gradients are at hand at once."""
        return 0.0

    def gather_s(self, shard: int, gradients: int) -> float:
        """Averaging takes no time."""
        return 0.0

    def evaluation_s(self) -> float:
        """Return the same each time."""
        return self.evaluate_s

    def claim_s(self, process: str, now: float) -> tuple[float, float]:
        """Claims are answered at once."""
        return 0.0, 0.0


Receiver = Callable[[Role, Role, Any, Any], None]
"""Takes sender, addressee, message, and what travels beside it."""

_FIRST: Final = Role("coordinator", "1")


class Post:
    """Delivers messages, those for the coordinator to the one that their sender has heard of last.

    Parameters
    ----------
    world
        Says how long each message takes, and how often it arrives.
    snapshot
        Returns the visible content of a copy: it travels beside the answer to a pull.
    receivers
        By the kind of their role.
    """

    def __init__(
        self, agenda: Agenda, world: World, snapshot: Callable[[str], Any], receivers: Mapping[str, Receiver]
    ) -> None:
        self._agenda = agenda
        self._world = world
        self._snapshot = snapshot
        self._receivers = receivers
        self._obeyed: dict[str, Role] = {}
        self._newest_term = 1

    def send(self, sender: Role, effect: Send, content: Any = None) -> None:
        """Let a message arrive as often, and as late, as the world says."""
        to, message = effect.to, effect.message
        if type(message) is Pulled:
            content = self._snapshot(sender.name)
        if to.kind == "coordinator":
            to = self._obeyed.get(sender.name, _FIRST)
        receiver = self._receivers[to.kind]
        for delay_s in self._world.deliver(sender, to, message, self._agenda.now):
            self._agenda.enter(delay_s, receiver, sender, to, message, content)

    def introduce(self, name: str, term: int) -> None:
        """Let what the role of that name says to the coordinator go to the one of `term`."""
        self._obeyed[name] = Role("coordinator", str(term))
        self._newest_term = max(self._newest_term, term)

    def hear(self, name: str, message: Any) -> bool:
        """Note which coordinator the role of that name hears of by a message; return whether of another than before."""
        if self._newest_term == 1:
            return False
        term = getattr(message, "term", 0)
        if term <= int(self._obeyed.get(name, _FIRST).name):
            return False
        self.introduce(name, term)
        return True

    def announce(self, term: int) -> None:
        """Note that there is a coordinator of `term`, of which nobody has heard yet."""
        self._newest_term = max(self._newest_term, term)
