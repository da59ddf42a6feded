"""Messages on their way between the roles of an in-memory run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from psplatform.core.effects import Role, Send
from psplatform.core.messages import Pulled
from psplatform.memory.agenda import Agenda
from psplatform.memory.world import World

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
