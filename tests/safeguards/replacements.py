"""What stands in for each safeguard of the protocol while it is taken away (`ablations`).

Each function here takes a method and returns the one that replaces it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from psplatform.core.coordination.members.roster import Roster
from psplatform.core.coordination.order.commit_logs import Pool
from psplatform.core.coordination.shards.copies import Copies
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Send
from psplatform.core.shards.links import Link, Links
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.core.supervision import replicated_coordinator as lead
from psplatform.memory.roles.leading import VirtualElection
from psplatform.simulation.faults.checks.reference_model import ReferenceModel
from psplatform.simulation.faults.storage import Storage


def always(value: Any) -> Callable[[Any], Any]:
    """Return what replaces anything by `value`."""
    return lambda original: value


def noting_desertion_only(note: Any) -> Any:
    """Count gradient workers as missing only where none is left."""

    def noted(self: Any, workers: Any, now: float) -> None:
        note(self, workers, now)
        self._few_since = math.inf

    return noted


def obeying_every_term(handle: Any) -> Any:
    """Raise the term of a message to the one that the copy knows."""

    def wrapped(copy: ShardCopy, event: Any, now: float) -> Any:
        term = getattr(event, "term", None)
        if isinstance(term, int) and term < copy.part.term:
            event = replace(event, term=copy.part.term)
        return handle(copy, event, now)

    return wrapped


def unfenced(handle: Any) -> Any:
    """Let a server forget at once that it was replaced."""

    def wrapped(server: Server, event: Any, now: float) -> Any:
        effects = handle(server, event, now)
        server.fenced = False
        return effects

    return wrapped


def of_any_epoch(on_transfer: Any) -> Any:
    """Let a replica take the transfers of servers that were replaced."""

    def wrapped(replica: Replica, transfer: msg.Transfer) -> Any:
        epoch, replica.epoch = replica.epoch, min(replica.epoch, transfer.epoch)
        effects = on_transfer(replica, transfer)
        replica.epoch = max(replica.epoch, epoch)
        return effects

    return wrapped


def in_order_of_arrival(drain: Any) -> Any:
    """Take gradients out of the pool as they came, not by slot."""

    def wrapped(pool: Pool) -> Any:
        gradients = tuple(pool._gradients.values())
        drain(pool)
        return gradients

    return wrapped


def promoting_who_joins(lose_server: Any) -> Any:
    """Count the replicas that are joining as in sync when a server is lost."""

    def wrapped(copies: Copies, one: Any, event: Any) -> Any:
        one.in_sync = [*reversed(one.joining), *one.in_sync]
        one.joining = []
        return lose_server(copies, one, event)

    return wrapped


def unwitnessed(*kinds: type[Any]) -> Callable[[Any], Any]:
    """Do effects of these kinds, or that send messages of them, before standbys know why."""

    def make(must_be_acknowledged: Any) -> Any:
        def wrapped(effect: Any) -> bool:
            message = effect.message if isinstance(effect, Send) else effect
            return not isinstance(message, kinds) and bool(must_be_acknowledged(effect))

        return wrapped

    return make


def awaiting_one(begin: Any) -> Any:
    """Await the answer of the first shard's server only."""

    def wrapped(taking: Any, *arguments: Any) -> None:
        begin(taking, *arguments)
        first, *_ = sorted(taking.awaited_shards)
        taking.awaited_shards = {first}

    return wrapped


def as_if_everything_were_known(on_promoted: Any) -> Any:
    """Let a promoted copy serve before the other servers have answered."""

    def wrapped(taking: Any, message: msg.Promoted) -> None:
        promoting = taking._state.shards[message.shard].promoting
        taking._copies.on_promoted(message)
        taking._state.shards[message.shard].promoting = promoting
        on_promoted(taking, message)
        taking._state.shards[message.shard].promoting = False

    return wrapped


def granting_all(claim: Any) -> Any:
    """Grant a number each time it is claimed."""

    def wrapped(election: VirtualElection, name: str, number: tuple[int, int], claimant: str, feed: Any) -> None:
        election.granted.pop(number, None)
        claim(election, name, number, claimant, feed)

    return wrapped


def seen_by_any(leading: lead.ReplicatedCoordinator) -> int:
    """Return the events that the most advanced standby has witnessed."""
    return max(leading.standbys.values(), default=leading.handled)


def with_its_own_number(on_claimed: Any) -> Any:
    """Let a standby claim its own number only."""

    def wrapped(witness: Any, event: Any, now: float) -> Any:
        witness._open &= {witness.number}
        return on_claimed(witness, event, now)

    return wrapped


def of_the_gradient_alone(stage: Any) -> Any:
    """Estimate a step from the gradient's norm alone."""

    def wrapped(reference: ReferenceModel, copy: str, factor: float, rate: float) -> float:
        stage(reference, copy, factor, rate)
        held = reference.copies[copy]
        return 0.01 * rate * math.sqrt(math.fsum(held.squared_norms()))

    return wrapped


def any_gradient_there(gather: Any) -> Any:
    """Average whatever gradient a worker holds."""

    def wrapped(arithmetic: Any, copy: str, contributions: Any, **options: Any) -> Any:
        exposed = arithmetic._exposed
        for one in contributions:
            kept = exposed.get(one.member, {})
            if kept and one.sequence not in kept:
                kept[one.sequence] = next(reversed(kept.values()))
        return gather(arithmetic, copy, contributions, **options)

    return wrapped


def however_far(arrived: Any) -> Any:
    """Count a joining replica as in sync once it has loaded anything."""

    def wrapped(links: Links, replica: str, number: int, position: int) -> Link | None:
        link = links.get(replica)
        found: Link | None = arrived(links, replica, number, position)
        if found is None and link is not None and not link.in_sync and link.position >= 0:
            link.in_sync = True
            return link
        return found

    return wrapped


def while_loading(handle: Any) -> Any:
    """Let a replica that is promoted count what it is loading as loaded."""

    def wrapped(copy: ShardCopy, event: Any, now: float) -> Any:
        part = copy.part
        if isinstance(event, msg.Promote) and isinstance(part, Replica) and part._loading is not None:
            part.position, part.version = part._loading.position, part._loading.version
            part._loading = None
        return handle(copy, event, now)

    return wrapped


def repeats_count(on_announce: Any) -> Any:
    """Judge a gradient each time it is announced."""

    def wrapped(component: Any, message: msg.Announce) -> Any:
        member = component._state.roster.by_name.get(message.member)
        if member is not None and message.sequence <= member.sequence and not member.busy:
            component._take(member, message)
        return on_announce(component, message)

    return wrapped


def without_asking_the_store(storage: Storage, number: int, named: dict[int, int]) -> None:
    """Count a manifest as written even if writing it failed."""
    try:
        storage.write_manifest(number, named)
    finally:
        storage.manifests[number] = dict(named)


def ignoring_cuts(take_next: Any) -> Any:
    """Let a server apply the next commit while a checkpoint's part is not captured."""

    def wrapped(server: Any) -> Any:
        sending = server._sending
        cut, sending.cut = sending.cut, 0
        effects = take_next(server)
        sending.cut = sending.cut or cut
        return effects

    return wrapped


def of_any_position(on_written: Any) -> Any:
    """Take a checkpoint's part whatever position it shows."""

    def wrapped(checkpoints: Any, message: msg.Written) -> None:
        if checkpoints._cut is not None:
            position = checkpoints._cut.positions.get(message.shard, message.position)
            message = replace(message, position=position)
        on_written(checkpoints, message)

    return wrapped


def answering_as_successor(answers: Any) -> Any:
    """Let a server answer pulls after it has handed over."""

    def wrapped(server: Server) -> Any:
        sending = server._sending
        successor, sending.successor = sending.successor, ""
        effects = answers(server)
        sending.successor = successor
        return effects

    return wrapped


def any_in_sync(level_with: Any) -> Any:
    """Hand over to the first replica in sync if none is level."""

    def wrapped(links: Links, position: int) -> Link | None:
        return level_with(links, position) or next((links.get(name) for name in links.in_sync), None)

    return wrapped


def whatever_epoch_is_told(handle: Any) -> Any:
    """Lower the epoch that a pull tells of to the server's own."""

    def wrapped(server: Server, event: Any, now: float) -> Any:
        if isinstance(event, msg.Pull):
            event = replace(event, epoch=min(event.epoch, server.epoch))
        return handle(server, event, now)

    return wrapped


def without_waiting(serve_if_level: Any) -> Any:
    """Return what lets a promoted server serve at once, however far behind its successors are."""

    def wrapped(server: Server) -> Any:
        order = server._promotion.order
        if order is None:
            return []
        server._promotion.order = replace(order, successors=())
        return serve_if_level(server)

    return wrapped


def as_if_alone(promote: Any) -> Any:
    """Return what promotes a copy as if nobody else could be: the other replicas join anew."""

    def wrapped(copies: Copies, one: Any) -> None:
        one.joining, one.in_sync = [*one.in_sync, *one.joining], []
        promote(copies, one)

    return wrapped


def without_tickets(make_contribution: Any) -> Any:
    """Let commits not say on which batches their gradients were computed."""

    def wrapped(one: Any) -> msg.Contribution:
        contribution: msg.Contribution = make_contribution(one)
        return replace(contribution, assignment=None)

    return wrapped


def only_what_is_released(reserve: Any) -> Any:
    """Let a slot count on from what this coordinator has released, whatever another one has."""

    def wrapped(roster: Roster, slot: int, sequence: int) -> None:
        if any(one.slot == slot and one.sequence == sequence for one in roster.members()):
            reserve(roster, slot, sequence)

    return wrapped


def once_for_each_gradient(offer: Any) -> Any:
    """Let a worker offer each gradient once, whoever has heard it."""

    def wrapped(session: Any) -> list[Send]:
        offered: set[int] = vars(session).setdefault("offered", set())
        effects: list[Send] = [one for one in offer(session) if one.message.announce.sequence not in offered]
        offered.update(one.message.announce.sequence for one in effects)
        return effects

    return wrapped


def unless_granted(on_offer: Any) -> Any:
    """Answer no offer that was granted, as far as is known."""

    def wrapped(transfers: Any, message: msg.Offer) -> None:
        offers = transfers._offers
        if offers.find(message.announce, offers.granted) is None:
            on_offer(transfers, message)

    return wrapped


def as_one_update(decide: Any) -> Any:
    """Commit as if there were one update, however many are told."""

    def wrapped(commits: Any, commit_log: Any, gradients: Any, reason: str, **_: int) -> None:
        decide(commits, commit_log, gradients, reason)

    return wrapped


def leaving_out(field: str) -> Callable[[Any], Any]:
    """Change all fields that are to be changed but one."""

    def replacement(replace: Any) -> Any:
        return lambda one, **changes: replace(one, **{name: value for name, value in changes.items() if name != field})

    return replacement
