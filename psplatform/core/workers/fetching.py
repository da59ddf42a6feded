"""Whom a worker asks for parameters: the server of each shard, or for one pull a relay that hands them on."""

from __future__ import annotations

from typing import Final

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Send, SetTimer
from psplatform.core.protocol.names import Role, first_server
from psplatform.core.workers.pulling import Pulling

_PATIENCE: Final = "pull"
"""Tag of the timer at which a pull goes on with what it has: the same for all pulls, so that one replaces another."""

RELAYED: Final = "relayed"
"""Tag of the timer at which the servers are asked for what a relay has not answered."""


class Fetching:
    """One worker's pulls, each on its way to where it is answered.

    Parameters
    ----------
    pulling
        Its pulls.

    Attributes
    ----------
    unconfirmed
        Whether the parameters are there, but were decided in a higher term than the release, which must be repeated.
    """

    __slots__ = ("_epochs", "_relay", "_servers", "pulling", "unconfirmed")

    def __init__(self, pulling: Pulling) -> None:
        self.pulling = pulling
        self.unconfirmed = False
        self._servers = [first_server(shard) for shard in range(pulling.shards)]
        self._epochs = [0] * pulling.shards
        self._relay = ""

    def server_of(self, shard: int) -> str:
        """Return the name of the copy that serves the shard, as far as this worker has heard."""
        return self._servers[shard]

    def epoch_of(self, shard: int) -> int:
        """Return of which epoch that is; 0 where nothing was heard."""
        return self._epochs[shard]

    @property
    def awaits_repetition(self) -> bool:
        """Whether only the repeated release is missing."""
        return self.unconfirmed and self.pulling.enough

    def begin(self, release: msg.Release, slot: int, now: float) -> list[Effect]:
        """Ask for what the release wants; whatever was asked for before is void."""
        self.unconfirmed = False
        self._relay = release.relay
        pulls = self._ask(self.pulling.begin(release.version, (slot, release.sequence)))
        return [*pulls, SetTimer(RELAYED, now + release.patience_s)] if self._relay else pulls

    def _ask(self, pulls: list[msg.Pull]) -> list[Effect]:
        if self._relay:
            return [Send(Role.relay(self._relay), pull) for pull in pulls]
        return [Send(Role.copy(self._servers[pull.shard]), pull) for pull in pulls]

    def pass_over_relay(self) -> list[Effect]:
        """Ask the servers for what a relay has not answered."""
        if not self._relay:
            return []
        self._relay = ""
        return self._ask(self.pulling.again())

    def moved(self, message: msg.Moved, *, pulling: bool) -> list[Effect]:
        """Turn to a shard's new server; `pulling` says whether the parameters are still being fetched."""
        over = self.pass_over_relay() if pulling and message.epoch > self._epochs[message.shard] else []
        again = self.pulling.moved(message.shard, message.epoch, pulling=pulling)
        if message.epoch >= self._epochs[message.shard]:
            self._epochs[message.shard] = message.epoch
            self._servers[message.shard] = message.copy
        return over + self._ask(again)

    def take(self, answer: msg.Pulled, now: float) -> list[Effect]:
        """Take an answer; return what must be asked again, or the wait for others where it is enough without them."""
        had_enough = self.pulling.enough
        again = self.pulling.on_pulled(answer)
        if again:
            return self._ask(again)
        if had_enough or self.pulling.complete or not self.pulling.enough:
            return []
        # Even without patience: what comes at the same time counts, or the last to be asked would never be fresh.
        return [SetTimer(_PATIENCE, now + self.pulling.rule.timeout_s)]
