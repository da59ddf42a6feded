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
from collections.abc import Callable
from enum import Enum
from typing import Any

from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import CancelCompute, Compute, Depart, Effect, Expose, Send, SendPart
from psplatform.core.protocol.events import (
    Begin,
    ComputeAborted,
    Computed,
    ComputeFailed,
    Overwritten,
    Reachable,
    TimerFired,
)
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.workers.announcing import Announcing
from psplatform.core.workers.fetching import RELAYED, Fetching
from psplatform.core.workers.pulling import Pulling
from psplatform.core.workers.releases import Releases


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
        self._fetching = Fetching(Pulling(member, shards, traits.exact, traits.pull, seed))
        self._releases = Releases()
        self._announcing = Announcing(member, shards, per_block=self._per_block)
        self._term = 0
        self._since = self._abort_at = self._now = 0.0
        # Term and number of the last route obeyed for the gradient at hand; and whether it was sent to be summed.
        self._routed = -1, -1
        self._summed = False

    def server_of(self, shard: int) -> str:
        """Return the name of the copy that serves the shard, as far as this session has heard."""
        return self._fetching.server_of(shard)

    @property
    def counter(self) -> int:
        """The version asked for by the release at hand, -1 before the first."""
        return self._releases.at_hand.version if self._releases.at_hand is not None else -1

    @property
    def waiting_for(self) -> str:
        """What this session waits for, in words."""
        if self.activity is Activity.PULLING and not self._fetching.awaits_repetition:
            return f"shards {self._fetching.pulling.waiting_for}"
        of_coordinator = (Activity.JOINING, Activity.WAITING, Activity.OFFERED, Activity.PULLING)
        return "the coordinator" if self.activity in of_coordinator else self.activity.value

    def expects(self, answer: msg.Pulled) -> bool:
        """Whether the content that comes with `answer` belongs into the parameters now."""
        return self.activity is Activity.PULLING and self._fetching.pulling.expects(answer)

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`; a message of a lower term than heard before changes nothing."""
        self._now = now
        term = getattr(event, "term", None)
        if self.activity is Activity.GONE or (term is not None and term < self._term):
            return []
        self._term = self._term if term is None else term
        return _HANDLERS[type(event)](self, event)

    def _join(self) -> Send:
        return Send(COORDINATOR, msg.Join(self.member, self.process, self._host))

    def _on_welcome(self, message: msg.Welcome) -> list[Effect]:
        if self.activity is Activity.JOINING:
            self.slot = message.slot
            return self._rest()
        return []

    def _on_release(self, release: msg.Release) -> list[Effect]:
        if self._releases.is_known(release):
            self._releases.confirm(release)
            return self._go_on()
        if self.activity is Activity.OFFERED and self._summed:  # with others, and that is decided
            self._announcing.computed, self._releases.following = None, release
            self._releases.settled = self._releases.at_hand.sequence if self._releases.at_hand is not None else 0
            return self._rest()
        if self.activity is not Activity.WAITING:
            self._releases.following = release
            return self._go_on()
        return self._start(release)

    def _go_on(self) -> list[Effect]:
        """Begin to compute if that was what it waited for, unless it waits for it still."""
        return self._compute() if self.activity is Activity.PULLING and self._fetching.awaits_repetition else []

    def _start(self, release: msg.Release) -> list[Effect]:
        self._releases.begin(release)
        self._announcing.wait_s = self._now - self._since
        self._since = self._now
        return self._pull(release)

    def _pull(self, release: msg.Release) -> list[Effect]:
        self.activity = Activity.PULLING
        return self._fetching.begin(release, self.slot, self._now)

    def _on_pulled(self, answer: msg.Pulled) -> list[Effect]:
        if self.activity is not Activity.PULLING:
            return []
        effects = self._fetching.take(answer, self._now)
        return self._compute() if self._fetching.pulling.complete else effects

    def _on_timer(self, event: TimerFired) -> list[Effect]:
        if self.activity is not Activity.PULLING:
            return []
        if event.tag == RELAYED:
            return self._fetching.pass_over_relay()
        # One that an earlier pull left behind finds this one without enough: with enough, it has been replaced.
        return self._compute() if self._fetching.pulling.enough else []

    def _compute(self) -> list[Effect]:
        release, fetching = self._releases.at_hand, self._fetching
        if release is None:
            return []
        # Decided by a coordinator that may not know of this release: it could have put another commit there than the
        # one that contains the last gradient, which would now be written over.  Blocks are sent: servers have copies.
        if not fetching.unconfirmed:
            self._announcing.pull_s = self._now - self._since
        fetching.unconfirmed = not self._per_block and fetching.pulling.decided_in > release.term
        if fetching.unconfirmed:
            if not self._releases.is_superseded(fetching.pulling.decided_in):
                return []
            self._abort_at = self._now
            return self._confirm_abort(release.sequence)
        fetching.pulling.cancel()
        self.activity = Activity.COMPUTING
        compute = Compute(self.slot, release.sequence, release.assignment)
        if not release.tell:
            return [compute]
        return [Send(COORDINATOR, msg.Fetched(self.member, release.sequence, self._announcing.pull_s)), compute]

    def _on_computed(self, event: Computed) -> list[Effect]:
        if self._releases.current(event.sequence) is None:
            return []
        if self.activity is Activity.ABORTING:
            return self._confirm_abort(event.sequence)
        self._announcing.take(event)
        self._since = self._now
        self._routed, self._summed = (-1, -1), False
        finite = math.isfinite(event.squared_norm) and math.isfinite(event.loss)
        if self._host and finite and self._is_sent():
            self.activity = Activity.OFFERED
            return self._offer()
        return self._expose(event.sequence)

    def _offer(self) -> list[Effect]:
        label, release = self._fetching.pulling.label, self._releases.at_hand
        if self.activity is not Activity.OFFERED or label is None or release is None:
            return []
        announce = self._announcing.describe(release, label)
        return [Send(COORDINATOR, msg.Offer(announce, self._host))] if announce is not None else []

    def _expose(self, sequence: int) -> list[Effect]:
        self._since = self._now
        self.activity = Activity.EXPOSING
        return [Expose(self.slot, sequence)]

    def _on_route(self, message: msg.Route) -> list[Effect]:
        route = message.term, message.number
        if self.activity is not Activity.OFFERED or self._releases.current(message.sequence) is None:
            return []
        if route <= self._routed:
            return []
        self._routed = route
        if message.aggregator:
            self._summed = True
            bundle = msg.Bundle(message.aggregator, *route)
            return [SendPart(self.slot, message.sequence, bundle)]
        self._announcing.wait_s += self._now - self._since
        return self._expose(message.sequence)

    def _on_drop(self, message: msg.Drop) -> list[Effect]:
        if self.activity is not Activity.OFFERED or self._releases.current(message.sequence) is None:
            return []
        self._announcing.computed = None
        self._releases.aborted = message.sequence  # a coordinator that takes over may not know
        return self._rest()

    def _on_reachable(self, event: Reachable) -> list[Effect]:
        release = self._releases.current(event.sequence)
        if release is None or self._announcing.computed is None:
            return []
        if self.activity is Activity.ABORTING:
            return self._confirm_abort(event.sequence)
        label = self._fetching.pulling.label
        if self.activity is not Activity.EXPOSING or label is None:
            return []
        said = Send(COORDINATOR, self._announcing.announce(release, label, event.shards, self._now - self._since))
        return [said] if self._announcing.computed is not None else [said, *self._rest()]

    def _on_abort(self, message: msg.Abort) -> list[Effect]:
        sequence = message.sequence
        if self._releases.at_hand is None or sequence > self._releases.at_hand.sequence:
            # The model moved on again before this gradient was begun: its release is kept, or still on its way.
            new = self._releases.forestall(sequence)
            return [Send(COORDINATOR, msg.Aborted(self.member, sequence, 0.0))] if new else []
        if sequence == self._releases.settled:  # its release has overtaken this
            return [Send(COORDINATOR, msg.Aborted(self.member, sequence, 0.0))]
        if self._releases.current(sequence) is None:
            return []
        at_once = self.activity in (Activity.PULLING, Activity.OFFERED)
        if not at_once and self.activity not in (Activity.COMPUTING, Activity.EXPOSING):
            return []
        self._abort_at = self._now
        if at_once:
            return self._confirm_abort(sequence)
        computing = self.activity is Activity.COMPUTING
        self.activity = Activity.ABORTING
        return [CancelCompute(sequence)] if computing else []

    def _on_compute_aborted(self, event: ComputeAborted) -> list[Effect]:
        if self.activity is not Activity.ABORTING or self._releases.current(event.sequence) is None:
            return []
        return self._confirm_abort(event.sequence)

    def _on_overwritten(self, event: Overwritten) -> list[Effect]:
        release = self._releases.current(event.sequence)
        if release is None:
            return []
        if self.activity is Activity.ABORTING:
            return self._confirm_abort(event.sequence)
        return self._pull(release)

    def _confirm_abort(self, sequence: int) -> list[Effect]:
        """Say that a gradient is given up, of which nothing is computed any more."""
        self._fetching.pulling.cancel()
        self._announcing.computed = None
        self._releases.aborted = sequence
        aborted = msg.Aborted(self.member, sequence, self._now - self._abort_at)
        return [Send(COORDINATOR, aborted), *self._rest()]

    def _rest(self) -> list[Effect]:
        self.activity = Activity.WAITING
        self._since = self._now
        return self._start(self._releases.following) if self._releases.following is not None else []

    def _on_compute_failed(self, event: ComputeFailed) -> list[Effect]:
        failed = msg.Failed(self.member, event.sequence, event.kind, event.text, event.traceback)
        return [Send(COORDINATOR, failed), *self._depart("the user's code raised")]

    def _on_state_request(self, message: msg.StateRequest) -> list[Effect]:
        # Whatever was said to the coordinator before may be lost with it.
        releases = self._releases
        newest = releases.following or releases.at_hand
        releases.forestalled = 0  # those that are on their way are of a lower term: nobody takes them any more
        if self.activity is Activity.JOINING or newest is None:
            self.activity = Activity.JOINING  # the new coordinator may not know that it was welcomed either
            if newest is not None and newest.term < message.term:
                releases.following = None  # nor of this release: it will grant its own
            return [self._join()]
        last = newest.sequence, newest.version, newest.assignment
        aborting = self.activity is Activity.ABORTING and newest is releases.at_hand
        aborted = aborting or newest.sequence == releases.aborted
        state = msg.WorkerState(message.term, self.member, *last, self._announcing.said, aborted)
        return [Send(COORDINATOR, state), *self._offer()]

    def _on_stop(self, message: msg.Stop) -> list[Effect]:
        release = self._releases.at_hand
        computing = self.activity in (Activity.COMPUTING, Activity.ABORTING)
        cancel: list[Effect] = [CancelCompute(release.sequence)] if computing and release is not None else []
        return cancel + self._depart(message.reason)

    def _depart(self, reason: str) -> list[Effect]:
        self.activity = Activity.GONE
        return [Depart(reason)]


_HANDLERS: dict[type, Callable[[WorkerSession, Any], list[Effect]]] = {
    Begin: lambda session, event: [session._join()],
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
    msg.Moved: lambda session, message: session._fetching.moved(message, pulling=session.activity is Activity.PULLING),
    msg.StateRequest: WorkerSession._on_state_request,
}
