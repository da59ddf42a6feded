"""What coordinators hear and decide of gradients: labels, batches, and those that were to be given up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Send
from psplatform.core.protocol.events import CopyAwake, CopyLost
from psplatform.core.protocol.messages import BatchAssignment
from psplatform.memory.roles.leading import VirtualCoordinator
from psplatform.simulation.faults.checks.histories import Identity, violated

_TAKING_OVER = (msg.ServerState, msg.Promoted, CopyAwake, CopyLost)
"""After these, commits of a lost coordinator may be adopted: it has not told anybody to give up what they have."""


class AnnouncedGradients:
    """Checks S9 at every gradient that a coordinator hears of or counts.

    Attributes
    ----------
    labels
        By slot and sequence, what each gradient was said to be computed on, to the newest coordinator that heard of it:
        one that was cut off may have had another worker in the slot.
    batches
        By slot and sequence, the batch of each gradient that a coordinator has ordered to be applied.
    """

    def __init__(self) -> None:
        self.labels: dict[Identity, msg.Label] = {}
        self.batches: dict[Identity, BatchAssignment] = {}
        self._aborted: set[tuple[str, str, int]] = set()
        self._heard_in: dict[Identity, int] = {}

    def judge(self, lead: VirtualCoordinator, event: Any, effects: Iterable[Effect]) -> None:
        """Judge what a coordinator does about `event`."""
        self._note_labels(lead, event)
        self._judge_accounted(lead, event)
        for effect in effects:
            if isinstance(effect, Send):
                self._judge_sent(lead, effect, adopts=isinstance(event, _TAKING_OVER))

    def _note_labels(self, lead: VirtualCoordinator, event: Any) -> None:
        said = event.announced if isinstance(event, msg.WorkerState) else (event,)
        for one in said:
            announce = one.announce if isinstance(one, msg.Offer) else one
            if isinstance(announce, msg.Announce):
                member = lead.lead.coordinator.state.roster.by_name.get(announce.member)
                name = (member.slot, announce.sequence) if member is not None else None
                if name is not None and lead.lead.term >= self._heard_in.get(name, 0):
                    self.labels[name], self._heard_in[name] = announce.label, lead.lead.term

    def _judge_accounted(self, lead: VirtualCoordinator, event: Any) -> None:
        """Raise if a gradient that was ready when it was to be given up is not accounted for."""
        coordinator = lead.lead.coordinator
        if not isinstance(event, msg.Announce) or coordinator.takeover.awaited_shards:
            return
        member = coordinator.state.roster.by_name.get(event.member)
        if member is not None and event.sequence in member.interrupted:
            raise violated("S9", f"{lead.name} waits for {event.member} to give up {event.sequence}, which it has sent")

    def _judge_sent(self, lead: VirtualCoordinator, effect: Send, *, adopts: bool) -> None:
        """Raise if a gradient counts which its worker was told to give up: its batch is dealt again."""
        message = effect.message
        if isinstance(message, msg.Abort) and not adopts:
            self._aborted.add((lead.name, effect.to.name, message.sequence))
        elif isinstance(message, msg.Commit):
            given = {(one.slot, one.sequence): one.assignment for one in message.contributions}
            self.batches.update({name: batch for name, batch in given.items() if batch is not None})
            counted = {(lead.name, one.member, one.sequence) for one in message.contributions} & self._aborted
            if counted and not adopts and not message.again:
                found = f"position {message.position} has {sorted(counted)}, which were to be given up"
                raise violated("S9", found)
