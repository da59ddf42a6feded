"""A worker's side of the protocol.

States: *joining* -> *waiting* for a release -> *pulling* -> *computing* -> *exposing* (every shard is given a way to
reach the gradient) -> announced, *waiting* again.  Where a policy decides block by block, each block is announced when
its shard can reach it.  Where transfers are planned, a gradient is *offered* before it is exposed, and may be dropped
instead.  One that is sent to be summed with others stays offered until the next release, which says that its fate is
decided: it may be told to send it again, another way.  What was computed on parameters that were written over meanwhile
leads back to *pulling*.  Parameters that were decided by a coordinator that has taken over since the release are not
computed on before that one has repeated the release: until then a session stays *pulling*.  An abort in *pulling*,
*computing*, *offered* or *exposing* leads back to *waiting* once the computation has really stopped; a release that
comes meanwhile is kept, and forgotten if that one is aborted too.  A stop ends the session from any state.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import (
    COORDINATOR,
    CancelCompute,
    Compute,
    Depart,
    Effect,
    Expose,
    Role,
    Send,
    SendPart,
    SetTimer,
    first_server,
)
from psplatform.core.protocol.events import (
    Begin,
    ComputeAborted,
    Computed,
    ComputeFailed,
    Overwritten,
    Reachable,
    TimerFired,
)
from psplatform.core.shards.server import MOST_AHEAD
from psplatform.core.workers.pulling import Pulling

_PATIENCE: Final = "pull"
"""Tag of the timer at which a pull goes on with what it has: the same for all pulls, so that one replaces another."""


_RELAYED: Final = "relayed"
"""Tag of the timer at which the servers are asked for what a relay has not answered."""


class Activity(Enum):
    """What a session is doing."""

    JOINING = "joining"
    WAITING = "waiting"
    PULLING = "pulling"
    COMPUTING = "computing"
    OFFERED = "offered"
    EXPOSING = "exposing"
    ABORTING = "aborting"
    GONE = "gone"


class WorkerSession:
    """The protocol of one worker process.

    Parameters
    ----------
    member
        A name that was never used before in this run.
    process
        Where it runs, for people.
    shards
        Number of shards.
    traits
        What the policy wants of workers.
    seed
        Of the drawing of shards to pull, where the policy wants only some.
    host
        Where its gradients lie, by the name that the planner of transfers has for it; empty where there is none.
    is_sent
        Says whether a gradient has to be sent to some server now: what all of them see where it lies is not offered.
    """

    def __init__(
        self,
        member: str,
        process: str,
        shards: int,
        traits: Traits,
        *,
        seed: int = 0,
        host: str = "",
        is_sent: Callable[[], bool] = lambda: True,
    ) -> None:
        self.member = member
        self.process = process
        self.activity = Activity.JOINING
        self.slot = -1
        self._host, self._is_sent = host, is_sent
        self._per_block = traits.scope is Scope.BLOCK
        self._pulling = Pulling(member, shards, traits.exact, traits.pull, seed)
        self._servers = [first_server(shard) for shard in range(shards)]
        self._epochs = [0] * shards
        # What a coordinator that takes over may not have heard of: block by block a worker runs ahead of its servers.
        self._announced: deque[msg.Announce] = deque(maxlen=shards * (MOST_AHEAD + 1) if self._per_block else 1)
        self._unreached = shards
        self._shards = shards
        self._patience_s = traits.pull.timeout_s
        self._term = 0
        self._release: msg.Release | None = None
        self._next: msg.Release | None = None
        self._forestalled = 0
        # Whether the parameters are there, but were decided in a higher term than the release, which must be repeated.
        self._unconfirmed = False
        self._aborted = 0
        self._computed: Computed | None = None
        self._since = 0.0
        self._wait_s = self._pull_s = 0.0
        self._abort_at = 0.0
        self._now = 0.0
        # Term and number of the last route obeyed for the gradient at hand.
        self._routed = -1, -1
        self._relay = ""
        # Whether the gradient at hand was sent to be summed; and the last of those that a release said to be decided.
        self._summed = False
        self._settled = 0

    def server_of(self, shard: int) -> str:
        """Return the name of the copy that serves the shard, as far as this session has heard."""
        return self._servers[shard]

    @property
    def counter(self) -> int:
        """The version asked for by the release at hand, -1 before the first."""
        return self._release.version if self._release is not None else -1

    @property
    def waiting_for(self) -> str:
        """What this session waits for, in words."""
        if self.activity is Activity.PULLING and not self._awaits_repetition:
            return f"shards {self._pulling.waiting_for}"
        of_coordinator = (Activity.JOINING, Activity.WAITING, Activity.OFFERED, Activity.PULLING)
        return "the coordinator" if self.activity in of_coordinator else self.activity.value

    def expects(self, answer: msg.Pulled) -> bool:
        """Whether the content that comes with `answer` belongs into the parameters now."""
        return self.activity is Activity.PULLING and self._pulling.expects(answer)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`; a message of a lower term than heard before changes nothing."""
        self._now = now
        term = getattr(event, "term", None)
        if self.activity is Activity.GONE or (term is not None and term < self._term):
            return []
        self._term = self._term if term is None else term
        return _HANDLERS[type(event)](self, event)

    def _on_begin(self, event: Begin) -> list[Effect]:
        return [self._join()]

    def _join(self) -> Send:
        return Send(COORDINATOR, msg.Join(self.member, self.process, self._host))

    def _on_welcome(self, message: msg.Welcome) -> list[Effect]:
        if self.activity is Activity.JOINING:
            self.slot = message.slot
            return self._rest()
        return []

    def _on_release(self, release: msg.Release) -> list[Effect]:
        if release.sequence <= self._newest_sequence():
            return self._confirm(release)
        if self.activity is Activity.OFFERED and self._summed:  # with others, and that is decided
            self._computed, self._next = None, release
            self._settled = self._release.sequence if self._release is not None else 0
            return self._rest()
        if self.activity is not Activity.WAITING:
            self._next = release
            return self._go_on()
        return self._start(release)

    def _confirm(self, release: msg.Release) -> list[Effect]:
        """Let a release that is known count as given by the coordinator that repeats it."""
        if self._next is not None and self._repeats(self._next, release):
            self._next = replace(self._next, term=release.term)
        elif self._release is not None and self._repeats(self._release, release):
            self._release = replace(self._release, term=release.term)
        return self._go_on()

    @property
    def _awaits_repetition(self) -> bool:
        """Whether only the repeated release is missing."""
        return self.activity is Activity.PULLING and self._unconfirmed and self._pulling.enough

    def _go_on(self) -> list[Effect]:
        """Begin to compute if that was what it waited for, unless it waits for it still."""
        return self._compute() if self._awaits_repetition else []

    def _repeats(self, known: msg.Release, release: msg.Release) -> bool:
        return (known.sequence, known.version) == (release.sequence, release.version)

    def _start(self, release: msg.Release) -> list[Effect]:
        self._release, self._next = release, None
        self._wait_s = self._now - self._since
        self._since = self._now
        return self._pull(release)

    def _pull(self, release: msg.Release) -> list[Effect]:
        self.activity = Activity.PULLING
        self._unconfirmed = False
        self._relay = release.relay
        pulls = self._send_pulls(self._pulling.begin(release.version, (self.slot, release.sequence)))
        return [*pulls, SetTimer(_RELAYED, self._now + release.patience_s)] if self._relay else pulls

    def _send_pulls(self, pulls: list[msg.Pull]) -> list[Effect]:
        return [Send(self._source(pull.shard), pull) for pull in pulls]

    def _source(self, shard: int) -> Role:
        return Role.relay(self._relay) if self._relay else Role.copy(self._servers[shard])

    def _pass_over_relay(self) -> list[Effect]:
        """Ask the servers for what a relay has not answered."""
        if self.activity is not Activity.PULLING or not self._relay:
            return []
        self._relay = ""
        return self._send_pulls(self._pulling.again())

    def _on_moved(self, message: msg.Moved) -> list[Effect]:
        pulling = self.activity is Activity.PULLING
        over = self._pass_over_relay() if message.epoch > self._epochs[message.shard] else []
        again = self._pulling.moved(message.shard, message.epoch, pulling=pulling)
        if message.epoch >= self._epochs[message.shard]:
            self._epochs[message.shard] = message.epoch
            self._servers[message.shard] = message.copy
        return over + self._send_pulls(again)

    def _on_pulled(self, answer: msg.Pulled) -> list[Effect]:
        if self.activity is not Activity.PULLING:
            return []
        had_enough = self._pulling.enough
        again = self._send_pulls(self._pulling.on_pulled(answer))
        if again:
            return again
        if self._pulling.complete:
            return self._compute()
        if self._pulling.enough and not had_enough:
            # Even without patience: what comes at the same time counts, or the last to be asked would never be fresh.
            return [SetTimer(_PATIENCE, self._now + self._patience_s)]
        return []

    def _on_timer(self, event: TimerFired) -> list[Effect]:
        if event.tag == _RELAYED:
            return self._pass_over_relay()
        # One that an earlier pull left behind finds this one without enough: with enough, it has been replaced.
        due = self.activity is Activity.PULLING and self._pulling.enough
        return self._compute() if due else []

    def _compute(self) -> list[Effect]:
        if self._release is None:
            return []
        # Decided by a coordinator that may not know of this release: it could have put another commit there than the
        # one that contains the last gradient, which would now be written over.  Blocks are sent: servers have copies.
        self._pull_s = self._pull_s if self._unconfirmed else self._now - self._since
        self._unconfirmed = not self._per_block and self._pulling.decided_in > self._release.term
        if self._unconfirmed:
            superseded = self._next is not None and self._next.term >= self._pulling.decided_in
            return self._give_up(self._release.sequence) if superseded else []
        self._pulling.cancel()
        self.activity = Activity.COMPUTING
        compute = Compute(self.slot, self._release.sequence, self._release.assignment)
        if not self._release.tell:
            return [compute]
        return [Send(COORDINATOR, msg.Fetched(self.member, self._release.sequence, self._pull_s)), compute]

    def _on_computed(self, event: Computed) -> list[Effect]:
        if not self._is_current(event.sequence):
            return []
        if self.activity is Activity.ABORTING:
            return self._confirm_abort(event.sequence)
        self._computed = event
        self._unreached = self._shards
        self._since = self._now
        self._routed, self._summed = (-1, -1), False
        finite = math.isfinite(event.squared_norm) and math.isfinite(event.loss)
        if self._host and finite and self._is_sent():
            self.activity = Activity.OFFERED
            return self._offer()
        return self._expose(event.sequence)

    def _offer(self) -> list[Effect]:
        label = self._pulling.label
        if self.activity is not Activity.OFFERED or self._computed is None or label is None:
            return []
        announce = replace(self._announcement(self._computed, label, ()), push_s=0.0)
        return [Send(COORDINATOR, msg.Offer(announce, self._host))]

    def _expose(self, sequence: int) -> list[Effect]:
        self._since = self._now
        self.activity = Activity.EXPOSING
        return [Expose(self.slot, sequence)]

    def _offers(self, sequence: int) -> bool:
        return self.activity is Activity.OFFERED and self._is_current(sequence)

    def _on_route(self, message: msg.Route) -> list[Effect]:
        route = message.term, message.number
        if not self._offers(message.sequence) or route <= self._routed:
            return []
        self._routed = route
        if message.aggregator:
            self._summed = True
            bundle = msg.Bundle(message.aggregator, *route)
            return [SendPart(self.slot, message.sequence, bundle)]
        self._wait_s += self._now - self._since
        return self._expose(message.sequence)

    def _on_drop(self, message: msg.Drop) -> list[Effect]:
        if not self._offers(message.sequence):
            return []
        self._computed = None
        self._aborted = message.sequence  # a coordinator that takes over may not know
        return self._rest()

    def _on_reachable(self, event: Reachable) -> list[Effect]:
        if not self._is_current(event.sequence) or self._computed is None:
            return []
        if self.activity is Activity.ABORTING:
            return self._confirm_abort(event.sequence)
        label = self._pulling.label
        if self.activity is not Activity.EXPOSING or label is None:
            return []
        said = self._announcement(self._computed, label, event.shards)
        self._announced.append(said)
        announce = Send(COORDINATOR, said)
        self._unreached -= len(event.shards) if self._per_block else self._unreached
        if self._unreached:
            return [announce]
        self._computed = None
        return [announce, *self._rest()]

    def _announcement(self, computed: Computed, label: msg.Label, shards: tuple[int, ...]) -> msg.Announce:
        return msg.Announce(
            member=self.member,
            sequence=computed.sequence,
            label=label,
            samples=computed.samples,
            loss=computed.loss,
            squared_norm=computed.squared_norm,
            compute_s=computed.seconds,
            pull_s=self._pull_s,
            push_s=self._now - self._since,
            wait_s=self._wait_s,
            shards=shards,
            counter=self.counter,
            flaw=computed.flaw,
            assignment=self._release.assignment if self._release is not None else None,
        )

    def _on_abort(self, message: msg.Abort) -> list[Effect]:
        sequence = message.sequence
        if self._release is None or sequence > self._release.sequence:
            return self._forestall(sequence)
        if sequence == self._settled:  # its release has overtaken this
            return [Send(COORDINATOR, msg.Aborted(self.member, sequence, 0.0))]
        if not self._is_current(sequence):
            return []
        if self.activity in (Activity.PULLING, Activity.OFFERED):
            return self._give_up(sequence)
        if self.activity not in (Activity.COMPUTING, Activity.EXPOSING):
            return []
        self._abort_at = self._now
        computing = self.activity is Activity.COMPUTING
        self.activity = Activity.ABORTING
        return [CancelCompute(sequence)] if computing else []

    def _forestall(self, sequence: int) -> list[Effect]:
        # The model moved on again before this gradient was begun: its release is kept, or still on its way.
        if sequence <= self._forestalled:
            return []
        self._forestalled = sequence
        if self._next is not None and self._next.sequence <= sequence:
            self._next = None
        return [Send(COORDINATOR, msg.Aborted(self.member, sequence, 0.0))]

    def _on_compute_aborted(self, event: ComputeAborted) -> list[Effect]:
        if self.activity is not Activity.ABORTING or not self._is_current(event.sequence):
            return []
        return self._confirm_abort(event.sequence)

    def _on_overwritten(self, event: Overwritten) -> list[Effect]:
        if self._release is None or not self._is_current(event.sequence):
            return []
        if self.activity is Activity.ABORTING:
            return self._confirm_abort(event.sequence)
        return self._pull(self._release)

    def _give_up(self, sequence: int) -> list[Effect]:
        """Give up a gradient that is not being computed, and say so."""
        self._abort_at = self._now
        self._pulling.cancel()
        return self._confirm_abort(sequence)

    def _confirm_abort(self, sequence: int) -> list[Effect]:
        self._computed = None
        self._aborted = sequence
        aborted = msg.Aborted(self.member, sequence, self._now - self._abort_at)
        return [Send(COORDINATOR, aborted), *self._rest()]

    def _rest(self) -> list[Effect]:
        self.activity = Activity.WAITING
        self._since = self._now
        return self._start(self._next) if self._next is not None else []

    def _on_compute_failed(self, event: ComputeFailed) -> list[Effect]:
        failed = msg.Failed(self.member, event.sequence, event.kind, event.text, event.traceback)
        return [Send(COORDINATOR, failed), *self._depart("the user's code raised")]

    def _on_state_request(self, message: msg.StateRequest) -> list[Effect]:
        # Whatever was said to the coordinator before may be lost with it.
        newest = self._next or self._release
        self._forestalled = 0  # releases that are on their way are of a lower term: nobody takes them any more
        if self.activity is Activity.JOINING or newest is None:
            self.activity = Activity.JOINING  # the new coordinator may not know that it was welcomed either
            if newest is not None and newest.term < message.term:
                self._next = None  # nor of this release: it will grant its own
            return [self._join()]
        last = newest.sequence, newest.version, newest.assignment
        aborting = self.activity is Activity.ABORTING and newest is self._release
        aborted = aborting or newest.sequence == self._aborted
        state = msg.WorkerState(message.term, self.member, *last, tuple(self._announced), aborted)
        return [Send(COORDINATOR, state), *self._offer()]

    def _on_stop(self, message: msg.Stop) -> list[Effect]:
        computing = self.activity in (Activity.COMPUTING, Activity.ABORTING) and self._release is not None
        sequence = self._release.sequence if self._release else 0
        return ([CancelCompute(sequence)] if computing else []) + self._depart(message.reason)

    def _depart(self, reason: str) -> list[Effect]:
        self.activity = Activity.GONE
        return [Depart(reason)]

    def _is_current(self, sequence: int) -> bool:
        return self._release is not None and self._release.sequence == sequence

    def _newest_sequence(self) -> int:
        known = [one.sequence for one in (self._release, self._next) if one is not None]
        return max([self._forestalled, *known])


_HANDLERS: dict[type, Callable[[WorkerSession, Any], list[Effect]]] = {
    Begin: WorkerSession._on_begin,
    Computed: WorkerSession._on_computed,
    ComputeAborted: WorkerSession._on_compute_aborted,
    ComputeFailed: WorkerSession._on_compute_failed,
    Overwritten: WorkerSession._on_overwritten,
    Reachable: WorkerSession._on_reachable,
    TimerFired: WorkerSession._on_timer,
    msg.Welcome: WorkerSession._on_welcome,
    msg.Release: WorkerSession._on_release,
    msg.Abort: WorkerSession._on_abort,
    msg.Drop: WorkerSession._on_drop,
    msg.Route: WorkerSession._on_route,
    msg.Stop: WorkerSession._on_stop,
    msg.Pulled: WorkerSession._on_pulled,
    msg.Moved: WorkerSession._on_moved,
    msg.StateRequest: WorkerSession._on_state_request,
}
