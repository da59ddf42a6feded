"""What every role may answer and obey, judged by what it does and by what it has heard."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import (
    Archive,
    Dismiss,
    Effect,
    Finish,
    Gather,
    Retire,
    SaveModel,
    Send,
    Serve,
    Transmit,
)
from psplatform.core.protocol.events import CopyLost, Tick
from psplatform.core.shards.server import Server
from psplatform.memory import MemoryRun
from psplatform.memory.roles.leading import VirtualCoordinator
from psplatform.memory.roles.shard_state import VirtualShardState
from psplatform.nodes.shard import ShardNode
from psplatform.simulation.faults.checks.announced import AnnouncedGradients
from psplatform.simulation.faults.checks.histories import violated
from psplatform.simulation.faults.checks.reference_model import ReferenceModel

_OF_COORDINATORS = (
    msg.Commit,
    msg.Proceed,
    msg.Include,
    msg.Exclude,
    msg.Promote,
    msg.StateRequest,
    msg.Lease,
)


class Observation:
    """Checks S3, S4, S6, S7, S10, S11 and hand-overs (S5) at everything that a coordinator or a copy handles.

    S11: no server is told to go on without its last replica by a coordinator that could not hear the scheduler since.

    Parameters
    ----------
    was_heard
        Whether a process could hear the scheduler, and was heard, at any time between two times.

    Attributes
    ----------
    counts
        How often what happened that faults provoke.
    handed_over
        Shard and epoch of each server that took over from one that ended in good order.
    archiving
        Names of copies and numbers of the checkpoints of which they were to write a part.
    dismissed
        The members that coordinators have dismissed.
    gradients
        What coordinators have heard and decided of gradients.
    """

    def __init__(
        self, run: MemoryRun, reference: ReferenceModel, was_heard: Callable[[str, float, float], bool]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._run = run
        self._reference = reference
        self._was_heard = was_heard
        self._alone_since: dict[tuple[str, int], float] = {}
        self._without: dict[str, set[str]] = defaultdict(set)
        self._serving: dict[int, int] = {}
        self._heard: dict[str, int] = {}
        self._fenced: set[str] = set()
        self._offered: dict[tuple[int, int], set[tuple[str, str]]] = defaultdict(set)
        self._asked: dict[tuple[str, int, int], int] = {}
        self._under_way: dict[tuple[str, str], int] = {}
        self._settled: dict[str, tuple[bool, int]] = {}
        self._cuts: dict[tuple[int, int], int] = {}
        self.handed_over: set[tuple[int, int]] = set()
        self.dismissed: set[str] = set()
        self.archiving: set[tuple[str, int]] = set()
        self.gradients = AnnouncedGradients()
        run.processes.on_handled = self.on_handled

    def on_handled(self, name: str, event: Any, effects: list[Effect]) -> None:
        """Judge what the role of that name does about `event`."""
        copy = self._run.copies.get(name)
        if copy is not None:
            self._judge_copy(name, copy, event, effects)
            self._reference.told(name, effects)
        else:
            self._judge_lead(name, event, effects)

    # --- copies ---

    def _judge_copy(self, name: str, copy: ShardNode[VirtualShardState], event: Any, effects: list[Effect]) -> None:
        part = copy.control.part
        if copy.closed:
            raise violated("S4", f"{name} was given up and goes on about {event}")
        self._note(name, event)
        if isinstance(event, _OF_COORDINATORS):
            self._judge_obedience(name, event, effects, part.term)
        if name in self._fenced:
            self.counts["zombie attempts"] += not isinstance(event, Tick | msg.Lease)
            if any(not _is_beat(one) for one in effects):
                raise violated("S4", f"{name} was replaced and still does {effects} about {event}")
        elif isinstance(part, Server) and _epoch_heard(event) > part.epoch:
            self.counts["fenced servers"] += 1
            if not part.fenced:
                raise violated("S4", f"{name} of epoch {part.epoch} goes on after {event}")
            self._fenced.add(name)
        if isinstance(event, msg.Transfer) and any(_is_send(one, msg.Outdated) for one in effects):
            self.counts["zombie attempts"] += 1
        for effect in effects:
            self._judge_effect(name, part, effect)
        if isinstance(part, Server):
            self._judge_order(name, part, event, effects)

    def _judge_order(self, name: str, part: Server, event: Any, effects: list[Effect]) -> None:
        if any(isinstance(one, Gather) for one in effects) and (part._sending.cut or part._sending.capturing):
            raise violated("S7", f"{name} goes on at {part.newest} before what is there was captured")
        asked = isinstance(event, msg.StateRequest) or (isinstance(event, msg.Promote) and event.epoch == part.epoch)
        if asked and not part.fenced and event.term == part.term:
            older = [one.position for one in part._applying._pending.values() if one.term < part.term]
            if older:
                raise violated("S10", f"{name} obeys term {part.term} and keeps positions {older} of a lower one")

    def _note(self, name: str, event: Any) -> None:
        if isinstance(event, msg.Pull):
            self._asked[event.member, event.shard, event.request] = event.version
        elif isinstance(event, msg.Replicated) and self._under_way.get((name, event.replica)) == event.number:
            self._under_way.pop((name, event.replica))
        elif isinstance(event, msg.Exclude):
            self._under_way.pop((name, event.replica), None)
        elif isinstance(event, msg.Promote):
            if not event.settled and self._serving.get(self._shard_of(name)) == event.epoch:
                return  # it serves already, and goes on
            # An order that is not settled may come after the one that is, of the same coordinator.
            settled, term = self._settled.get(name, (True, 0))
            self._settled[name] = (event.settled, event.term) if event.term > term else (settled or event.settled, term)

    def _shard_of(self, name: str) -> int:
        return self._run.copies[name].control.shard

    def _judge_effect(self, name: str, part: Any, effect: Effect) -> None:
        if isinstance(effect, Serve):
            self._begin(part.shard, effect.epoch)
            self._judge_hand_over(name, part.shard, effect.epoch)
        elif isinstance(effect, Send) and isinstance(effect.message, msg.HandedOver):
            self._judge_offer(name, effect.message)
        elif isinstance(effect, Send) and isinstance(effect.message, msg.Pulled):
            self._judge_answer(name, part, effect.to.name, effect.message)
        elif isinstance(effect, Send) and isinstance(effect.message, msg.ServerState):
            if effect.message.serving and effect.message.epoch > self._serving.get(part.shard, 1):
                raise violated("S4", f"{name} says that it serves under epoch {effect.message.epoch}, and does not")
        elif isinstance(effect, Archive):
            self.archiving.add((name, effect.number))
        elif isinstance(effect, Transmit):
            before = self._under_way.setdefault((name, effect.replica), effect.transfer.number)
            if before != effect.transfer.number:
                raise violated("S3", f"{name} sends {effect.replica} a transfer while another is under way")

    def _judge_obedience(self, name: str, event: Any, effects: list[Effect], term: int) -> None:
        heard = self._heard.get(name, 0)
        if event.term < heard:
            self.counts["zombie attempts"] += 1
            if any(not _is_send(one, msg.Refused) for one in effects) or term < heard:
                raise violated("S10", f"{name} heard term {heard} and obeys {event}")
        elif isinstance(event, msg.Lease) or any(_is_send(one, msg.Refused) for one in effects):
            self.counts["refusals"] += not isinstance(event, msg.Lease)
        else:
            self._heard[name] = max(heard, min(event.term, term))

    def _begin(self, shard: int, epoch: int) -> None:
        self.counts["promotions"] += 1
        serving = self._serving.get(shard, 1)
        if epoch == serving:
            raise violated("S4", f"shard {shard} has two servers under epoch {epoch}")
        # An order to a copy that was given up meanwhile may arrive late; its lease is over, and it answers nothing.
        self.counts["zombie attempts"] += epoch < serving
        self._serving[shard] = max(epoch, serving)

    def _judge_offer(self, name: str, offer: msg.HandedOver) -> None:
        server, replica = self._reference.histories[name], self._reference.histories[offer.replica]
        # Where the replica serves already, under a higher epoch, nothing comes of what its server says.
        if replica.epoch == offer.epoch and (replica.position, replica.digest) != (server.position, server.digest):
            raise violated("S5", f"{name} hands over to {offer.replica}, which lacks something of what {name} shows")
        self._offered[offer.shard, offer.epoch].add((name, offer.replica))

    def _judge_hand_over(self, name: str, shard: int, epoch: int) -> None:
        before = next((server for server, to in self._offered[shard, epoch - 1] if to == name), None)
        if before is None:
            return
        self.counts["handed over"] += 1
        self.handed_over.add((shard, epoch))
        shown, begun = self._reference.histories[before], self._reference.histories[name]
        if not np.array_equal(shown.front, begun.newest) or shown.lineage != begun.lineage:
            raise violated("S5", f"{before} has handed over to {name}, which begins with another state than it showed")

    def _judge_answer(self, name: str, part: Any, member: str, answer: msg.Pulled) -> None:
        serving = self._serving.get(part.shard, 1)
        if not self._settled.get(name, (True, 0))[0]:
            raise violated("S4", f"{name} answers {member} before it knows what had been decided")
        if answer.epoch > serving:
            raise violated("S4", f"{name} answers under epoch {answer.epoch} before it serves")
        if answer.epoch < serving:
            raise violated("S4", f"{name} answers under epoch {answer.epoch}, shard {part.shard} has {serving}")
        shown = self._reference.histories[name]
        if answer.version > part.version or answer.version < shown.version:
            raise violated("S4", f"{name} answers version {answer.version}, it shows {shown.version}")
        asked = self._asked.get((member, answer.shard, answer.request), 0)
        if answer.version < asked:
            raise violated("S6", f"{name} answers {member} version {answer.version}, it has asked for {asked}")

    # --- coordinators ---

    def _judge_lead(self, name: str, event: Any, effects: Iterable[Effect]) -> None:
        lead = next((one for one in self._run.leads if one.name == name), None)
        if lead is None:
            return
        if lead is not self._run.leads[-1] and isinstance(event, msg.Refused):
            self.counts["zombie attempts"] += 1
        # What one that was replaced takes for lost is witnessed by nobody: nothing comes of it.
        if isinstance(event, Tick) and lead is self._run.leads[-1]:
            self._judge_leases(lead, effects)
        if isinstance(event, msg.InSync):
            self.counts["joins in sync"] += 1
            self._reference.dirty.add(event.shard)
        self._judge_isolation(lead, effects)
        self.gradients.judge(lead, event, effects)
        for effect in effects:
            self._judge_decision(lead, effect)
            if isinstance(effect, Send):
                self._judge_said(lead, effect)

    def _judge_said(self, lead: VirtualCoordinator, effect: Send) -> None:
        over, message = lead.lead.entitled_until, effect.message
        if isinstance(message, msg.Lease) and self._run.agenda.now > over:
            raise violated("S4", f"{lead.name} gives a lease, its own was over at {over:g}")
        number = message.number if isinstance(message, msg.Cut) else getattr(message, "cut", 0)
        if number and effect.to.name in self._run.copies:
            shard = self._run.copies[effect.to.name].control.shard
            before = self._cuts.setdefault((number, shard), message.position)
            if before != message.position:
                raise violated("S7", f"checkpoint {number} is to have shard {shard} at {before} and {message.position}")

    def _judge_isolation(self, lead: VirtualCoordinator, effects: Iterable[Effect]) -> None:
        now = self._run.agenda.now
        told = set()
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, msg.Exclude):
                told.add(effect.to.name)
                self._without[effect.to.name].add(effect.message.replica)
        for one in lead.lead.coordinator.state.shards:
            key = lead.name, one.shard
            if one.in_sync:
                self._alone_since.pop(key, None)
                continue
            since = self._alone_since.setdefault(key, now)
            if one.server not in told or self._waits_for_another(one.server):
                continue
            if not self._was_heard(self._run.processes.of(lead.name), since, now):
                raise violated("S11", f"{lead.name}, cut off, lets {one.server} go on without a replica")

    def _waits_for_another(self, server: str) -> bool:
        """Whether a server has a replica in sync that no coordinator has told it to go on without."""
        part = self._run.copies[server].control.part
        return isinstance(part, Server) and not self._without[server].issuperset(part.links.in_sync)

    def _judge_leases(self, lead: VirtualCoordinator, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, msg.LogEntry):
                self._judge_silence(effect.message.event)
            elif isinstance(effect, Retire) and "silent" in effect.reason:
                self._judge_silence(CopyLost(effect.copy, "", effect.reason))

    def _judge_silence(self, event: Any) -> None:
        if not isinstance(event, CopyLost):
            return
        self.counts["leases run out"] += 1
        part, clock = self._run.copies[event.copy].control.part, self._run.processes.clock(event.copy)
        dead = self._run.processes.is_dead(event.copy)
        if isinstance(part, Server) and not dead and part.entitled_until > clock:
            raise violated(
                "S4", f"{event.copy} is taken for lost and is entitled until {part.entitled_until - clock:g} s on"
            )

    def _judge_decision(self, lead: VirtualCoordinator, effect: Effect) -> None:
        newest = self._run.leads[-1]
        if isinstance(effect, Dismiss):
            self.dismissed.add(effect.member)
        if isinstance(effect, Finish | SaveModel) and lead is not newest:
            raise violated("S10", f"{lead.name} was replaced by {newest.name} and does {effect}")
        # While servers are still awaited, what was decided before is sent again, and nothing new is.
        decides = _is_send(effect, msg.Commit) and not lead.lead.coordinator.takeover.awaited_shards
        if isinstance(effect, Send) and decides and lead is newest:
            for one in lead.lead.coordinator.state.shards:
                part = self._run.copies[one.server].control.part
                if not one.promoting and part.term < effect.message.term and effect.message.term > 1:
                    raise violated("S10", f"{lead.name} decides before {one.server} obeys it")


def _epoch_heard(event: Any) -> int:
    """Return the epoch of its shard's server that a copy learns of by an event."""
    tells = isinstance(event, msg.Pull | msg.Outdated | msg.Transfer)
    return int(event.epoch) if tells else 0


def _is_send(effect: Effect, kind: type[Any]) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, kind)


def _is_beat(effect: Effect) -> bool:
    return _is_send(effect, msg.Beat)
