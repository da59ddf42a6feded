"""Messages that were not sent and would be old or wrong here, made of one that was, to see what comes of them.

In a run, several guards stand between an old message and a role that would take it for new, so that no schedule shows
when one of them is missing.  Here each is met alone, in whatever state a run has brought a role to.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any, Final

from psplatform.core.coordination import Coordinator
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, Gather, Send
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.core.workers.pulling import WHOLE
from psplatform.core.workers.session import Activity, WorkerSession
from psplatform.simulation.faults.checks.histories import violated

ORDERS: Final = (msg.Commit, msg.Include, msg.Exclude, msg.HandOver, msg.Cut, msg.Promote)
"""What a coordinator orders the server of one epoch."""

REPORTS: Final = (
    msg.Applied,
    msg.Gathered,
    msg.InSync,
    msg.HandedOver,
    msg.Promoted,
    msg.Unreachable,
)
"""What the server of one epoch reports to a coordinator."""


def term_of(role: ShardCopy | WorkerSession) -> int:
    """Return the highest term that the role has heard."""
    return role._term if isinstance(role, WorkerSession) else role.part.term


def epoch_of(session: WorkerSession, shard: int) -> int:
    """Return of which epoch of a shard's server the worker was told last; 0 where it was told of none."""
    return session._fetching.epoch_of(shard)


def old_ones(role: Any, message: Any) -> Iterator[Any]:
    """Yield messages like `message` that the role must not take for new."""
    if isinstance(role, ShardCopy | WorkerSession) and hasattr(message, "term"):
        yield replace(message, term=term_of(role) - 1)
    if isinstance(role, WorkerSession) and isinstance(message, msg.Pulled):
        yield replace(message, epoch=epoch_of(role, message.shard) - 1)
    elif isinstance(role, ShardCopy):
        yield from _of_other_servers(role.part, message)
    elif isinstance(role, Coordinator):
        yield from _reports_of_others(role, message)


def _of_other_servers(part: Server | Replica, message: Any) -> Iterator[Any]:
    if isinstance(part, Server):
        if part._promotion.order is not None:
            yield _before(part._promotion.order)
        if isinstance(message, (*ORDERS, msg.Replicated)):
            yield replace(message, epoch=part.epoch - 1)
            yield replace(message, epoch=part.epoch + 1)
        if isinstance(message, msg.Commit):
            yield msg.Proceed(part.term - 1, part.newest + 1, 0.5)
        return
    if isinstance(message, msg.Transfer):
        yield replace(message, epoch=part.epoch - 1, number=message.number + 1)
    elif isinstance(message, msg.Promote):
        yield replace(message, epoch=part.epoch)
    if part.promotion is not None:
        yield _before(part.promotion)
        yield msg.Transfer("another server", part.shard, part.epoch + 1, 1, msg.STATE, 1, 1, 1.0, ())


def _before(order: msg.Promote) -> msg.Promote:
    """Return the order that a coordinator may have given before `order`: one more could be promoted."""
    return replace(order, successors=(*order.successors, "one that is lost now"))


def _reports_of_others(role: Coordinator, message: Any) -> Iterator[Any]:
    if isinstance(message, REPORTS):
        epoch = role.state.shards[message.shard].epoch
        yield replace(message, epoch=epoch - 1)
        yield replace(message, epoch=epoch + 1)
    elif isinstance(message, msg.Written):
        yield replace(message, number=message.number + 1)
        yield replace(message, position=message.position + 1)


def told_too_early(role: Coordinator) -> Iterator[Any]:
    """Yield what the copies that are being promoted may have said before they obeyed a coordinator that takes over."""
    term = role.state.term
    for one in role.state.shards if role.takeover.awaited_shards else ():
        if one.promoting:
            beyond = one.visible + 1
            yield msg.ServerState(one.shard, one.server, term, one.epoch, True, beyond, ())
            yield msg.Promoted(one.shard, one.server, one.epoch, beyond, beyond, term=term - 1)


def check_answers_successors(name: str, role: Any, now: float) -> None:
    """Let a worker hear of a new coordinator; raise if it tells it nothing: it would never be released (S10)."""
    if not isinstance(role, WorkerSession) or role.activity is Activity.GONE:
        return
    effects: list[Effect] = deepcopy(role).handle(msg.StateRequest(term_of(role) + 1), now)
    if not any(isinstance(one, Send) and isinstance(one.message, msg.Join | msg.WorkerState) for one in effects):
        raise violated("S10", f"{name} tells a new coordinator nothing, at {role.activity.value}")


def check_begun(name: str, session: WorkerSession) -> None:
    """Raise if a worker that fetches the whole model has begun to compute on a version of a lost server (S4)."""
    pulling = session._fetching.pulling
    for shard, answer in sorted(pulling._content.items()):
        if pulling.rule == WHOLE and answer.epoch < epoch_of(session, shard):
            found = f"of epoch {answer.epoch} of shard {shard}, and has heard of {epoch_of(session, shard)}"
            raise violated("S4", f"{name} computes on a version {found}")


def check_guards(name: str, role: Any, now: float) -> None:
    """Let a server hear that it was replaced; raise if it goes on (S4)."""
    if not isinstance(role, ShardCopy) or not isinstance(role.part, Server) or role.part.fenced:
        return
    shard, epoch = role.part.shard, role.part.epoch + 1
    successor = msg.Transfer("its successor", shard, epoch, 1, msg.STATE, 1, 1, 1.0, ())
    for ends in (msg.Pull("a worker", shard, 1, 0, epoch), msg.Outdated(shard, epoch), successor):
        heard = copy(role.part)  # who heeds it changes nothing but that
        if heard.handle(ends, now) or not heard.fenced:
            raise violated("S4", f"{name} goes on after {ends}")


def check_holds_back(name: str, role: Any, now: float) -> None:
    """Ask a server for what it shows; raise if it answers although it may not now (S4).

    That is before all that could be promoted in its place have what it has, after it has handed over, or without lease.
    """
    part = role.part if isinstance(role, ShardCopy) else None
    if not isinstance(part, Server) or part.fenced:
        return
    if part._promotion.order is None and not part._sending.successor and now <= part.entitled_until:
        return
    asked = deepcopy(part)
    answers = asked.handle(msg.Pull("a worker", part.shard, 1, 0, part.epoch), now)
    if any(isinstance(one, Send) and isinstance(one.message, msg.Pulled) for one in answers):
        raise violated("S4", f"{name} answers a pull at {now:g}, and must not yet, or not any more")


def check_applies_once(name: str, role: Any, now: float) -> None:
    """Let a server hear of a commit that is made of what it has applied already; raise if it takes any of it (S1)."""
    if not isinstance(role, ShardCopy) or not isinstance(role.part, Server) or role.part.fenced:
        return
    part = role.part
    again = tuple(msg.Contribution("a worker", slot, sequence) for slot, sequence in sorted(part.applied.items()))
    following = msg.Commit(part.term, part.epoch, part.newest + 1, part.version + 2, again, 1.0)
    effects: list[Effect] = deepcopy(part).handle(following, now) if again else []
    gathers = [one for one in effects if isinstance(one, Gather) and one.position == following.position]
    if any(set(one.contributions) & set(again) for one in gathers):
        raise violated("S1", f"{name} would apply {again} a second time")
