"""What a worker's process hands on of the parameters where time is virtual."""

from __future__ import annotations

from typing import Any

from psplatform.core.protocol.effects import HandOn, Send
from psplatform.core.protocol.messages import Pulled
from psplatform.core.protocol.names import Role
from psplatform.memory.engine import Network


class VirtualRelaying:
    """`psplatform.nodes.ports.Relaying` of one worker, and what is held there.

    Parameters
    ----------
    member
        The worker.
    """

    def __init__(self, member: str, network: Network) -> None:
        self._role, self._network = Role.relay(member), network
        self._held: dict[int, Any] = {}

    def keep(self, answer: Pulled, content: Any) -> None:
        """Hold what has come of a shard, instead of what was there before."""
        self._held[answer.shard] = content

    def send(self, effect: Send) -> None:
        """Send a pull to a server."""
        self._network.send(self._role, effect)

    def hand_on(self, effect: HandOn) -> None:
        """Send what is held to a worker."""
        self._network.send(self._role, Send(Role.member(effect.member), effect.answer), self._held[effect.answer.shard])
