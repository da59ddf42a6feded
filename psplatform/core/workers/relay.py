"""Hands parameters on to other workers, so that the servers send them once instead of to each.

A cache that is filled by asking: it answers a pull from what it holds if that is as new as asked, and else asks the
shard's server, once for all who wait.  Versions, epochs and terms travel unchanged, so that whoever pulls through a
relay knows as much of what it gets as if it came from a server.  A relay that does not answer is passed over: who waits
for it asks the servers itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, HandOn, Send
from psplatform.core.protocol.names import Role, first_server


@dataclass(slots=True)
class _Held:
    """What is known of one shard: its server, what is held of it, who waits, and what was asked for them."""

    shard: int
    server: str
    epoch: int = 0
    version: int = -1
    held_epoch: int = 0
    decided_in: int = 0
    waiting: dict[str, msg.Pull] = field(default_factory=dict)
    asked: msg.Pull | None = None

    def answers(self, pull: msg.Pull) -> bool:
        return self.version >= pull.version and self.held_epoch >= max(pull.epoch, self.epoch)


class Relay:
    """What one worker's process does for others.

    Parameters
    ----------
    name
        Under which servers answer it (`Role.relay`).
    shards
        Number of shards.
    """

    def __init__(self, name: str, shards: int) -> None:
        self.name = name
        self._shards = [_Held(shard, first_server(shard)) for shard in range(shards)]
        self._request = 0

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`."""
        return _HANDLERS[type(event)](self, event)

    def expects(self, answer: msg.Pulled) -> bool:
        """Whether the content that comes with `answer` is to be kept, before this is told of it."""
        one = self._shards[answer.shard]
        return one.asked is not None and answer.request == one.asked.request and answer.epoch >= one.epoch

    def _on_pull(self, pull: msg.Pull) -> list[Effect]:
        one = self._shards[pull.shard]
        kept = one.waiting.get(pull.member)
        if kept is None or kept.request < pull.request:
            one.waiting[pull.member] = pull
        return self._serve(one)

    def _on_pulled(self, answer: msg.Pulled) -> list[Effect]:
        one = self._shards[answer.shard]
        if not self.expects(answer):
            return []
        one.asked, one.version = None, answer.version
        one.held_epoch, one.decided_in = answer.epoch, answer.decided_in
        return self._serve(one)

    def _on_moved(self, message: msg.Moved) -> list[Effect]:
        one = self._shards[message.shard]
        if message.epoch <= one.epoch:
            return []
        one.server, one.epoch, one.asked = message.copy, message.epoch, None
        # Who waits has heard of it as well, or will: and asks the servers.
        one.waiting = {name: pull for name, pull in one.waiting.items() if pull.epoch >= message.epoch}
        return self._serve(one)

    def _serve(self, one: _Held) -> list[Effect]:
        """Answer who can be answered, and ask for the others what has not been asked for."""
        due = [pull for pull in one.waiting.values() if one.answers(pull)]
        for pull in due:
            del one.waiting[pull.member]
        held = one.version, one.held_epoch, one.decided_in
        effects: list[Effect] = [HandOn(pull.member, msg.Pulled(pull.shard, pull.request, *held)) for pull in due]
        if not one.waiting:
            return effects
        version = max(pull.version for pull in one.waiting.values())
        epoch = max(one.epoch, *(pull.epoch for pull in one.waiting.values()))
        if one.asked is None or one.asked.epoch < epoch:  # else what comes is mostly new enough for all
            self._request += 1
            one.asked = msg.Pull(self.name, one.shard, self._request, version, epoch)
            effects.append(Send(Role.copy(one.server), one.asked))
        return effects


_HANDLERS: dict[type, Callable[[Relay, Any], list[Effect]]] = {
    msg.Pull: Relay._on_pull,
    msg.Pulled: Relay._on_pulled,
    msg.Moved: Relay._on_moved,
}
