"""The safeguards of the protocol, each taken away from outside, so that it shows whether the checks would notice.

A check that notices nothing when a safeguard is missing proves nothing when it is there.  Nothing in the product knows
of this: each ablation replaces a few methods for as long as it lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from psplatform.core import lead, placement, shard_copy, standby
from psplatform.core import messages as msg
from psplatform.core.coordination import admission, takeover
from psplatform.core.coordination.checkpoints import Checkpoints
from psplatform.core.coordination.copies import Copies
from psplatform.core.effects import Finish, SaveModel, Seal, Send
from psplatform.core.links import Link, Links
from psplatform.core.pool import Pool
from psplatform.core.replica import Replica
from psplatform.core.server import Server
from psplatform.core.shard_copy import ShardCopy
from psplatform.memory.claims import Claims
from psplatform.memory.training import TensorArithmetic
from psplatform.replication import accounts
from psplatform.simulation.faults import heirs
from psplatform.simulation.faults.drawing import draw
from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.storage import Storage
from psplatform.simulation.faults.truth import Truth

SEEDS: Final = 50
"""Trials within which every missing safeguard must show."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """A safeguard that can be taken away.

    Attributes
    ----------
    name, what
        In a word, and what is done without it.
    patches
        What is replaced: an object, the name of its attribute, and the replacement made from what was there.
    scenario
        That the trials follow which look for it, where it matters in few others; empty for any.
    reason
        Why no trial can tell it from nothing: what else does its work.  Empty for those that are needed.
    """

    name: str
    what: str
    patches: tuple[tuple[Any, str, Callable[[Any], Any]], ...]
    scenario: str = ""
    reason: str = ""


@contextmanager
def without(ablation: Ablation) -> Iterator[None]:
    """Take a safeguard away for a while."""
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in ablation.patches]
    for owner, name, make in ablation.patches:
        setattr(owner, name, make(vars(owner)[name]))
    try:
        yield
    finally:
        for owner, name, original in before:
            setattr(owner, name, original)


def first_caught(ablation: Ablation, *, seeds: Iterable[int] = range(SEEDS)) -> Verdict | None:
    """Return the first verdict that notices the missing safeguard, or ``None`` if no seed does."""
    with without(ablation):
        for seed in seeds:
            verdict = run_trial(draw(seed, scenario=ablation.scenario))
            if verdict.invariant:
                return verdict
    return None


# --- what replaces what ---


def _as(value: Any) -> Callable[[Any], Any]:
    return lambda original: value


def _obeying_every_term(handle: Any) -> Any:
    def wrapped(copy: ShardCopy, event: Any, now: float) -> Any:
        term = getattr(event, "term", None)
        if isinstance(term, int) and term < copy.part.term:
            event = replace(event, term=copy.part.term)
        return handle(copy, event, now)

    return wrapped


def _unfenced(handle: Any) -> Any:
    def wrapped(server: Server, event: Any, now: float) -> Any:
        effects = handle(server, event, now)
        server.fenced = False
        return effects

    return wrapped


def _of_any_epoch(on_transfer: Any) -> Any:
    def wrapped(replica: Replica, transfer: msg.Transfer) -> Any:
        epoch, replica.epoch = replica.epoch, min(replica.epoch, transfer.epoch)
        effects = on_transfer(replica, transfer)
        replica.epoch = max(replica.epoch, epoch)
        return effects

    return wrapped


def _in_order_of_arrival(drain: Any) -> Any:
    def wrapped(pool: Pool) -> Any:
        gradients = tuple(pool._gradients.values())
        drain(pool)
        return gradients

    return wrapped


def _promoting_who_joins(lose_server: Any) -> Any:
    def wrapped(copies: Copies, one: Any, event: Any) -> Any:
        one.in_sync = [*reversed(one.joining), *one.in_sync]
        one.joining = []
        return lose_server(copies, one, event)

    return wrapped


def _unwitnessed(*kinds: type[Any]) -> Callable[[Any], Any]:
    def make(must_be_witnessed: Any) -> Any:
        def wrapped(effect: Any) -> bool:
            message = effect.message if isinstance(effect, Send) else effect
            return not isinstance(message, kinds) and bool(must_be_witnessed(effect))

        return wrapped

    return make


def _awaiting_nobody(begin: Any) -> Any:
    def wrapped(taking: Any, *arguments: Any) -> None:
        begin(taking, *arguments)
        first, *_ = sorted(taking._awaited)
        taking._awaited = {first}

    return wrapped


def _as_if_everything_were_known(on_promoted: Any) -> Any:
    def wrapped(taking: Any, message: msg.Promoted) -> None:
        promoting = taking._state.shards[message.shard].promoting
        taking._copies.on_promoted(message)
        taking._state.shards[message.shard].promoting = promoting
        on_promoted(taking, message)
        taking._state.shards[message.shard].promoting = False

    return wrapped


def _granting_everybody(claim: Any) -> Any:
    def wrapped(claims: Claims, name: str, number: tuple[int, int], claimant: str, feed: Any) -> None:
        claims.granted.pop(number, None)
        claim(claims, name, number, claimant, feed)

    return wrapped


def _seen_by_any(leading: lead.Lead) -> int:
    return max(leading.standbys.values(), default=leading.handled)


def _with_its_own_number(on_claimed: Any) -> Any:
    def wrapped(witness: Any, event: Any, now: float) -> Any:
        witness._open &= {witness.number}
        return on_claimed(witness, event, now)

    return wrapped


def _of_the_gradient_alone(stage: Any) -> Any:
    def wrapped(truth: Truth, copy: str, factor: float, rate: float) -> float:
        stage(truth, copy, factor, rate)
        held = truth.copies[copy]
        return 0.01 * rate * math.sqrt(math.fsum(held.squared_norms()))

    return wrapped


def _whatever_lies_there(gather: Any) -> Any:
    def wrapped(arithmetic: Any, copy: str, contributions: Any, **options: Any) -> Any:
        exposed = arithmetic._exposed
        for one in contributions:
            kept = exposed.get(one.member, {})
            if kept and one.sequence not in kept:
                kept[one.sequence] = next(reversed(kept.values()))
        return gather(arithmetic, copy, contributions, **options)

    return wrapped


def _however_far(arrived: Any) -> Any:
    def wrapped(links: Links, replica: str, number: int, position: int) -> Link | None:
        link = links.get(replica)
        found: Link | None = arrived(links, replica, number, position)
        if found is None and link is not None and not link.in_sync and link.position >= 0:
            link.in_sync = True
            return link
        return found

    return wrapped


def _while_loading(handle: Any) -> Any:
    def wrapped(copy: ShardCopy, event: Any, now: float) -> Any:
        part = copy.part
        if isinstance(event, msg.Promote) and isinstance(part, Replica) and part._loading is not None:
            part.position, part.version = part._loading.position, part._loading.version
            part._loading = None
        return handle(copy, event, now)

    return wrapped


def _repeats_count(on_announce: Any) -> Any:
    def wrapped(desk: Any, message: msg.Announce) -> Any:
        member = desk._state.roster.get(message.member)
        if member is not None and message.sequence <= member.sequence and not member.busy:
            desk._take(member, message)
        return on_announce(desk, message)

    return wrapped


def _without_asking_the_store(storage: Storage, number: int, named: dict[int, int]) -> None:
    try:
        storage.write_manifest(number, named)
    finally:
        storage.manifests[number] = dict(named)


def _ignoring_cuts(take_next: Any) -> Any:
    def wrapped(server: Any) -> Any:
        cut, server._cut = server._cut, 0
        effects = take_next(server)
        server._cut = server._cut or cut
        return effects

    return wrapped


def _of_any_position(on_written: Any) -> Any:
    def wrapped(checkpoints: Any, message: msg.Written) -> None:
        if checkpoints._cut is not None:
            position = checkpoints._cut.positions.get(message.shard, message.position)
            message = replace(message, position=position)
        on_written(checkpoints, message)

    return wrapped


def _whoever_inherits(answers: Any) -> Any:
    def wrapped(server: Server) -> Any:
        heir, server._heir = server._heir, ""
        effects = answers(server)
        server._heir = heir
        return effects

    return wrapped


def _whoever_is_in_sync(level_with: Any) -> Any:
    def wrapped(links: Links, position: int) -> Link | None:
        return level_with(links, position) or next((links.get(name) for name in links.in_sync), None)

    return wrapped


def _whatever_epoch_is_told(handle: Any) -> Any:
    def wrapped(server: Server, event: Any, now: float) -> Any:
        if isinstance(event, msg.Pull):
            event = replace(event, epoch=min(event.epoch, server.epoch))
        return handle(server, event, now)

    return wrapped


ABLATIONS: Final[tuple[Ablation, ...]] = (
    Ablation(
        "acknowledge before replicate",
        "a version is shown however far away its replicas are",
        ((Links, "within", _as(property(lambda links: True))),),
    ),
    Ablation(
        "no lease",
        "a server answers after its lease is over",
        ((shard_copy, "entitlement", _as(lambda sent_at, seconds: math.inf)),),
        "a server wakes up",
    ),
    Ablation(
        "lease without margin",
        "the holder of a lease stops when it ends on its own clock, however slow that is",
        ((shard_copy, "entitlement", _as(lambda sent_at, seconds: sent_at + seconds)),),
        "a server wakes up",
    ),
    Ablation(
        "no fencing by epoch",
        "a replaced server goes on, and replicas take what it sends",
        ((Server, "handle", _unfenced), (Replica, "_on_transfer", _of_any_epoch)),
        "a server wakes up",
    ),
    Ablation(
        "no term",
        "copies obey a coordinator that was replaced",
        ((ShardCopy, "handle", _obeying_every_term),),
        "a coordinator wakes up",
    ),
    Ablation(
        "no claim",
        "a coordinator and its standby both go on",
        ((Claims, "claim", _granting_everybody),),
        "a coordinator wakes up",
    ),
    Ablation(
        "deciding before every server obeys",
        "a coordinator that has taken over waits for one server only",
        ((takeover.Takeover, "begin", _awaiting_nobody),),
        "a unit is lost",
    ),
    Ablation(
        "losing before adopting",
        "a coordinator that has taken over says what a shard has lost before it has heard of all that was decided",
        ((takeover.Takeover, "on_promoted", _as_if_everything_were_known),),
        "a server is lost during a takeover",
    ),
    Ablation(
        "no adoption",
        "what a lost coordinator has decided is decided anew",
        ((takeover.Takeover, "_adopt", _as(lambda taking, lane, known: None)),),
        "a coordinator wakes up",
    ),
    Ablation(
        "exclusion before it is witnessed",
        "a server goes on without a replica that the standby may still promote",
        ((lead, "_must_be_witnessed", _unwitnessed(msg.Exclude)),),
        "a replica, then the coordinator",
    ),
    Ablation(
        "end before it is witnessed",
        "the run ends, or a manifest is written, and the standby does not know",
        ((lead, "_must_be_witnessed", _unwitnessed(Seal, Finish, SaveModel)),),
        "a coordinator wakes up",
    ),
    Ablation(
        "going on alone",
        "a server goes on without its last replica, whether or not its coordinator is cut off",
        ((lead.Lead, "_leaves_alone", _as(lambda leading, effect: False)),),
        "a coordinator is cut off alone",
    ),
    Ablation(
        "hosts unknown to placement",
        "roles are placed as if every process had a host of its own",
        ((placement, "apart", _as(lambda one, other: placement.Apart(2 * (one.address != other.address)))),),
        "a host is lost",
    ),
    Ablation(
        "other standbys forgotten",
        "a standby takes over with its own number alone",
        ((standby.Standby, "_on_claimed", _with_its_own_number),),
        "coordinators are lost together",
    ),
    Ablation(
        "serving before heirs are level",
        "a promoted server serves although the other replicas may be behind what it shows",
        ((Server, "_serve_if_level", heirs.without_waiting),),
        "servers are lost in a row",
    ),
    Ablation(
        "heirs forgotten",
        "the other replicas of a shard whose server was promoted are promoted in its place no more",
        ((Copies, "promote", heirs.as_if_alone),),
        "servers are lost in a row",
    ),
    Ablation(
        "witnessed by one",
        "what cannot be undone happens when one of several standbys has witnessed what led to it",
        ((lead.Lead, "_witnessed", _as(property(_seen_by_any))),),
        "coordinators are lost together",
    ),
    Ablation(
        "promotion of a replica out of sync",
        "one that is still joining is promoted",
        ((Copies, "_lose_server", _promoting_who_joins),),
        "a joining replica is all there is",
    ),
    Ablation(
        "in sync too early",
        "a joining replica counts as in sync after its first transfer, however far away it is",
        ((Links, "arrived", _however_far),),
        "a joining replica is all there is",
    ),
    Ablation(
        "promotion while loading",
        "a promoted replica does not wait for the transfer that it is loading",
        ((ShardCopy, "handle", _while_loading),),
        "a lagging replica is promoted",
    ),
    Ablation(
        "answers after handing over",
        "a server that has handed over answers on until its process ends",
        ((Server, "_answers", _whoever_inherits),),
        "a retiring server is cut off",
    ),
    Ablation(
        "handing over to whoever lags",
        "a server hands over to a replica in sync whatever that lacks",
        ((Links, "level_with", _whoever_is_in_sync),),
        "server and replica retire at once",
    ),
    Ablation(
        "waiting for replicas that nobody knows",
        "a server goes on waiting for a replica that only a lost coordinator knew of",
        ((Copies, "disown", _as(lambda copies, one, replicas: None)),),
        "only the lost coordinator knew",
    ),
    Ablation(
        "estimate without the optimiser",
        "the account counts a hundredth of the gradient instead of the measured step",
        ((Truth, "stage", _of_the_gradient_alone),),
    ),
    Ablation(
        "estimate without slack",
        "norms enter the account exactly as measured",
        ((accounts, "_SLACK", _as(0.0)),),
    ),
    Ablation(
        "sums in the order of arrival",
        "gradients of a round are added up as they came",
        ((Pool, "drain", _in_order_of_arrival),),
    ),
    Ablation(
        "no dedupe",
        "a gradient that is announced twice is judged twice, by coordinator and servers",
        (
            (admission.Admission, "on_announce", _repeats_count),
            (admission.Admission, "_void", _as(lambda desk, gradient, lane: None)),
            (Server, "_unapplied", _as(lambda server, contributions: contributions)),
        ),
    ),
    Ablation(
        "slabs without a sequence",
        "a server reads whatever gradient lies where the one it wants was",
        ((TensorArithmetic, "gather", _whatever_lies_there),),
        "a lagging replica is promoted",
    ),
    Ablation(
        "labels not rebased",
        "what was computed on a lost version passes for what took its place",
        (
            (admission, "rebased", _as(lambda label, shards: label)),
            (admission.Admission, "_on_lost_version", _as(lambda desk, gradient, lane: False)),
        ),
        "a lagging replica is promoted",
    ),
    Ablation(
        "steps before the cut is captured",
        "a server computes on while a checkpoint waits for its state, and the coordinator takes any part",
        ((Server, "_take_next", _ignoring_cuts), (Checkpoints, "on_written", _of_any_position)),
        "a lagging replica is promoted",
    ),
    Ablation(
        "manifest not atomic",
        "a checkpoint counts as complete before its parts and its manifest are read again",
        ((Storage, "seal", _as(_without_asking_the_store)),),
        "the storage fails",
    ),
)

REDUNDANT: Final[tuple[Ablation, ...]] = (
    Ablation(
        "no epoch on pull",
        "a server does not look at the epoch that a pull tells of",
        ((Server, "handle", _whatever_epoch_is_told),),
        "a server wakes up",
        reason="who pulls has heard of a server and of its epoch in one message, so that no server is ever told a "
        "higher one than its own; one that was replaced and wakes up is stopped by its lease, and by replicas that "
        "refuse its transfers",
    ),
)
"""Safeguards that no trial can tell from nothing, each with its `Ablation.reason`."""
