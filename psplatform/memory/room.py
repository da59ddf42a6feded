"""Back pressure: who pushes blocks far ahead of a server waits until it has caught up, as in a real run."""

from __future__ import annotations

from collections.abc import Callable

from psplatform.core.server import Server
from psplatform.memory.agenda import Agenda


class Room:
    """What waits in front of the servers of one run.

    Parameters
    ----------
    server_of
        Returns the present server of a shard.
    """

    def __init__(self, agenda: Agenda, server_of: Callable[[int], Server], shards: int) -> None:
        self._agenda = agenda
        self._server_of = server_of
        self._waiting: list[list[Callable[[], None]]] = [[] for _ in range(shards)]

    def is_at(self, shard: int, counter: int) -> bool:
        """Whether the shard's server takes a push that contributes to the version after `counter`."""
        return self._server_of(shard).has_room_for(counter)

    def wait_at(self, shard: int, action: Callable[[], None]) -> None:
        """Do `action` when the shard's server shows its next version."""
        self._waiting[shard].append(action)

    def on_published(self, shard: int) -> None:
        """Note that the shard's server shows a new version."""
        waiting, self._waiting[shard] = self._waiting[shard], []
        for action in waiting:
            self._agenda.enter(0.0, action)
