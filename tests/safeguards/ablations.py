"""The safeguards of the protocol, each taken away from outside, so that it shows whether the checks would notice.

A check that notices nothing when a safeguard is missing proves nothing when it is there.  Nothing in the product knows
of this: each ablation replaces a few methods for as long as it lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import replacements as instead

from psplatform.core.coordination import takeover
from psplatform.core.coordination.members.roster import Roster
from psplatform.core.coordination.order import admission, commits
from psplatform.core.coordination.order.commit_logs import Pool
from psplatform.core.coordination.order.epochs import BatchScheduler
from psplatform.core.coordination.shards.checkpoints import Checkpoints
from psplatform.core.coordination.shards.copies import Copies
from psplatform.core.coordination.transfers.bundles import Bundles
from psplatform.core.coordination.transfers.gradients import Transfers
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Finish, SaveModel, Seal
from psplatform.core.shards import replica as shard_copy
from psplatform.core.shards.applying import Applying
from psplatform.core.shards.links import Links
from psplatform.core.shards.replica import Replica, ShardCopy
from psplatform.core.shards.server import Server
from psplatform.core.supervision import placement, standby
from psplatform.core.supervision import replicated_coordinator as lead
from psplatform.core.supervision.evaluator import EvaluatorSupervisor
from psplatform.core.supervision.shortage import Shortage
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.core.supervision.workers import WorkerSupervisor
from psplatform.core.workers.session import WorkerSession
from psplatform.memory.roles.leading import VirtualElection
from psplatform.memory.training import TensorArithmetic
from psplatform.replication import accounts
from psplatform.simulation.faults.checks.reference_model import ReferenceModel
from psplatform.simulation.faults.execution import Verdict, run_trial
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.storage import Storage

SEEDS: Final = 100
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
                assert not verdict.found.startswith("TypeError"), f"{ablation.name!r} is not put in its place right"
                return verdict
    return None


ABLATIONS: Final[tuple[Ablation, ...]] = (
    Ablation(
        "acknowledge before replicate",
        "a version is shown however far away its replicas are",
        ((Links, "within", instead.always(property(lambda links: True))),),
    ),
    Ablation(
        "no lease",
        "a server answers after its lease is over",
        ((shard_copy, "entitlement", instead.always(lambda sent_at, seconds: math.inf)),),
        "a server wakes up",
    ),
    Ablation(
        "lease without margin",
        "the holder of a lease stops when it ends on its own clock, however slow that is",
        ((shard_copy, "entitlement", instead.always(lambda sent_at, seconds: sent_at + seconds)),),
        "a server wakes up",
    ),
    Ablation(
        "no fencing by epoch",
        "a replaced server goes on, and replicas take what it sends",
        ((Server, "handle", instead.unfenced), (Replica, "_on_transfer", instead.of_any_epoch)),
        "a server wakes up",
    ),
    Ablation(
        "no term",
        "copies obey a coordinator that was replaced",
        ((ShardCopy, "handle", instead.obeying_every_term),),
        "a coordinator wakes up",
    ),
    Ablation(
        "no claim",
        "a coordinator and its standby both go on",
        ((VirtualElection, "claim", instead.granting_all),),
        "a coordinator wakes up",
    ),
    Ablation(
        "deciding before every server obeys",
        "a coordinator that has taken over waits for one server only",
        ((takeover.Takeover, "begin", instead.awaiting_one),),
        "a unit is lost",
    ),
    Ablation(
        "losing before adopting",
        "a coordinator that has taken over says what a shard has lost before it has heard of all that was decided",
        ((takeover.Takeover, "on_promoted", instead.as_if_everything_were_known),),
        "a server is lost during a takeover",
    ),
    Ablation(
        "no adoption",
        "what a lost coordinator has decided is decided anew",
        ((takeover.Takeover, "_adopt", instead.always(lambda taking, commit_log, known: None)),),
        "a coordinator wakes up",
    ),
    Ablation(
        "exclusion before it is witnessed",
        "a server goes on without a replica that the standby may still promote",
        ((lead, "_must_be_acknowledged", instead.unwitnessed(msg.Exclude)),),
        "a replica, then the coordinator",
    ),
    Ablation(
        "passing over before it is witnessed",
        "a shard passes over a position whose gradients are lost, and the standby does not know",
        ((lead, "_must_be_acknowledged", instead.unwitnessed(msg.Commit)),),
        "gradients are lost unseen",
    ),
    Ablation(
        "end before it is witnessed",
        "the run ends, or a manifest is written, and the standby does not know",
        ((lead, "_must_be_acknowledged", instead.unwitnessed(Seal, Finish, SaveModel)),),
        "a coordinator wakes up",
    ),
    Ablation(
        "going on alone",
        "a server goes on without its last replica, whether or not its coordinator is cut off",
        ((lead.ReplicatedCoordinator, "_leaves_alone", instead.always(lambda leading, effect: False)),),
        "a coordinator is cut off alone",
    ),
    Ablation(
        "hosts unknown to placement",
        "roles are placed as if every process had a host of its own",
        ((placement, "apart", instead.always(lambda one, other: placement.Apart(2 * (one.address != other.address)))),),
        "a host is lost",
    ),
    Ablation(
        "other standbys forgotten",
        "a standby takes over with its own number alone",
        ((standby.Standby, "_on_claimed", instead.with_its_own_number),),
        "coordinators are lost together",
    ),
    Ablation(
        "serving before heirs are level",
        "a promoted server serves although the other replicas may be behind what it shows",
        ((Server, "_serve_if_level", instead.without_waiting),),
        "servers are lost in a row",
    ),
    Ablation(
        "heirs forgotten",
        "the other replicas of a shard whose server was promoted are promoted in its place no more",
        ((Copies, "promote", instead.as_if_alone),),
        "servers are lost in a row",
    ),
    Ablation(
        "commits without tickets",
        "a coordinator that has taken over does not learn which batches the commits that it adopts have used",
        ((commits, "_contribution", instead.without_tickets),),
        "batches are out as coordinators are lost",
    ),
    Ablation(
        "duplicates count",
        "a gradient is applied although another one was computed on the same batch",
        ((BatchScheduler, "is_duplicate", instead.always(lambda batch_scheduler, slot, sequence: False)),),
        "batches are out as coordinators are lost",
    ),
    Ablation(
        "names are given again",
        "the next process in a slot is released for a gradient that a lost coordinator had committed",
        ((Roster, "reserve", instead.only_what_is_released),),
        "batches are out as coordinators are lost",
    ),
    Ablation(
        "offers made once",
        "a worker does not offer its gradient again to a coordinator that has taken over",
        ((WorkerSession, "_offer", instead.once_for_each_gradient),),
        "a coordinator wakes up",
    ),
    Ablation(
        "offers answered once",
        "an offer that a lost coordinator may have granted gets no answer when it is repeated",
        ((Transfers, "on_offer", instead.unless_granted),),
        scenario="a unit is lost",
    ),
    Ablation(
        "sums count once",
        "a sum of several updates makes one version, as a mean does",
        ((commits.Commits, "decide", instead.as_one_update),),
        "gradients are summed",
    ),
    Ablation(
        "sums given up in part",
        "a sum that was given up, because a part of it is sent again, is taken when it comes after all",
        ((Bundles, "_take", instead.always(lambda bundles, found: found)),),
        "gradients are summed",
    ),
    Ablation(
        "what is ahead is not counted",
        "the gradients of a sum are judged as if each were the first to be applied",
        ((admission, "replace", instead.leaving_out("ahead")),),
        "gradients are summed",
    ),
    Ablation(
        "witnessed by one",
        "what cannot be undone happens when one of several standbys has witnessed what led to it",
        ((lead.ReplicatedCoordinator, "_acknowledged", instead.always(property(instead.seen_by_any))),),
        "coordinators are lost together",
    ),
    Ablation(
        "promotion of a replica out of sync",
        "one that is still joining is promoted",
        ((Copies, "_lose_server", instead.promoting_who_joins),),
        "a joining replica is all there is",
    ),
    Ablation(
        "in sync too early",
        "a joining replica counts as in sync after its first transfer, however far away it is",
        ((Links, "arrived", instead.however_far),),
        "a joining replica is all there is",
    ),
    Ablation(
        "promotion while loading",
        "a promoted replica does not wait for the transfer that it is loading",
        ((ShardCopy, "handle", instead.while_loading),),
        "a lagging replica is promoted",
    ),
    Ablation(
        "answers after handing over",
        "a server that has handed over answers on until its process ends",
        ((Server, "_answers", instead.answering_as_successor),),
        "a retiring server is cut off",
    ),
    Ablation(
        "handing over to whoever lags",
        "a server hands over to a replica in sync whatever that lacks",
        ((Links, "level_with", instead.any_in_sync),),
        "server and replica retire at once",
    ),
    Ablation(
        "waiting for replicas that nobody knows",
        "a server goes on waiting for a replica that only a lost coordinator knew of",
        ((Copies, "disown", instead.always(lambda copies, one, replicas: None)),),
        "only the lost coordinator knew",
    ),
    Ablation(
        "estimate without the optimiser",
        "the account counts a hundredth of the gradient instead of the measured step",
        ((ReferenceModel, "stage", instead.of_the_gradient_alone),),
    ),
    Ablation(
        "estimate without slack",
        "norms enter the account exactly as measured",
        ((accounts, "_SLACK", instead.always(0.0)),),
    ),
    Ablation(
        "sums in the order of arrival",
        "gradients of a round are added up as they came",
        ((Pool, "drain", instead.in_order_of_arrival),),
    ),
    Ablation(
        "no dedupe",
        "a gradient that is announced twice is judged twice, by coordinator and servers",
        (
            (admission.Admission, "on_announce", instead.repeats_count),
            (admission.Admission, "_void", instead.always(lambda component, gradient, commit_log: None)),
            (Applying, "_unapplied", instead.always(lambda applying, contributions: contributions)),
        ),
    ),
    Ablation(
        "slabs without a sequence",
        "a server reads whatever gradient lies where the one it wants was",
        ((TensorArithmetic, "gather", instead.any_gradient_there),),
        "a lagging replica is promoted",
    ),
    Ablation(
        "labels not rebased",
        "what was computed on a lost version passes for what took its place",
        (
            (admission, "rebased", instead.always(lambda label, shards: label)),
            (admission.Admission, "_on_lost_version", instead.always(lambda component, gradient, commit_log: False)),
        ),
        "a lagging replica is promoted",
    ),
    Ablation(
        "steps before the cut is captured",
        "a server computes on while a checkpoint waits for its state, and the coordinator takes any part",
        ((Server, "_take_next", instead.ignoring_cuts), (Checkpoints, "on_written", instead.of_any_position)),
        "a lagging replica is promoted",
    ),
    Ablation(
        "workers not replaced",
        "nothing is started in the place of gradient workers that are lost",
        ((WorkerSupervisor, "fill", instead.always(lambda supervisor: [])),),
        "a host is lost",
    ),
    Ablation(
        "gradient workers never share",
        "none is started beside a copy of a shard as long as one is left",
        ((Shortage, "note", instead.noting_desertion_only),),
        "processes stay away",
    ),
    Ablation(
        "evaluator not replaced",
        "nothing is started in the place of an evaluator that is lost",
        ((EvaluatorSupervisor, "replace", instead.always(lambda supervisor, usable, busy, now: [])),),
        "an evaluator is lost",
    ),
    Ablation(
        "silent once, unused for ever",
        "a process whose gradient worker was silent for a while is given no role any more",
        ((UnavailableProcesses, "heard", instead.always(lambda processes, name: False)),),
        "a host is cut off",
    ),
    Ablation(
        "manifest not atomic",
        "a checkpoint counts as complete before its parts and its manifest are read again",
        ((Storage, "seal", instead.always(instead.without_asking_the_store)),),
        "the storage fails",
    ),
)

REDUNDANT: Final[tuple[Ablation, ...]] = (
    Ablation(
        "no epoch on pull",
        "a server does not look at the epoch that a pull tells of",
        ((Server, "handle", instead.whatever_epoch_is_told),),
        "a server wakes up",
        reason="who pulls has heard of a server and of its epoch in one message, so that no server is ever told a "
        "higher one than its own; one that was replaced and wakes up is stopped by its lease, and by replicas that "
        "refuse its transfers",
    ),
    Ablation(
        "sums without a deadline",
        "a sum that does not come is waited for",
        ((Bundles, "take_overdue", instead.always(lambda bundles: [])),),
        "gradients are summed",
        reason="who should sum, or give a part, and does not is lost for being silent some seconds later, and its "
        "bundles with it; so that the deadline saves time only",
    ),
)
"""Safeguards that no trial can tell from nothing, each with its `Ablation.reason`."""
