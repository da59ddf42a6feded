"""The coordinator: executes what the state machine that is in charge of a run asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from psplatform.core.protocol.effects import (
    Appoint,
    CancelTimer,
    Claim,
    Consult,
    Depart,
    Discard,
    Dismiss,
    Effect,
    Evaluate,
    Finish,
    Forget,
    Log,
    Recruit,
    Redirect,
    Retire,
    SaveModel,
    Seal,
    Send,
    SetTimer,
)
from psplatform.core.protocol.events import RunBroken, TimerFired
from psplatform.core.protocol.messages import Acknowledged, Lease, Leave
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import PsplatformError
from psplatform.nodes.ports import Arbiter, CheckpointStore, ShardPool, StandbyPool, Timers, WorkerPool

_AFTER_THE_END = Leave | Acknowledged | Lease


class CoordinatorNode:
    """Executes the effects of one coordinator, in their order.

    Parameters
    ----------
    lead
        The state machine.
    clock
        Returns the run's time, in seconds.
    send
        Takes what is sent to servers, replicas, workers and standbys.
    log
        Takes the records of the event log.
    make_timers
        Returns the port; what it is given takes the tags of timers that are due.
    shards, workers, standbys
        Make, and let go of, the run's other roles.
    arbiter
        Answers claims.
    checkpoints
        Completes checkpoints.
    finish
        Takes how the run has ended.
    depart
        Takes the reason for which another is in charge now.
    explain
        Returns what ends the run because of an exception, in handling the event that it is given with or, for
        ``None``, in executing what was decided; or raises the exception.
    note
        Told of each event, with what is about to be executed about it.

    Attributes
    ----------
    timers
        The port.
    over
        Whether the run has ended: only who says good-bye, or has witnessed that, is heard any more.
    """

    def __init__(  # noqa: PLR0913  ports, each a different thing
        self,
        lead: ReplicatedCoordinator,
        clock: Callable[[], float],
        *,
        send: Callable[[Send], None],
        log: Callable[[dict[str, Any]], None],
        make_timers: Callable[[Callable[[str], None]], Timers],
        shards: ShardPool,
        workers: WorkerPool,
        standbys: StandbyPool,
        arbiter: Arbiter,
        checkpoints: CheckpointStore,
        finish: Callable[[Finish], None],
        depart: Callable[[str], None],
        explain: Callable[[Exception, Any], PsplatformError],
        note: Callable[[Any, list[Effect]], None] = lambda event, effects: None,
    ) -> None:
        self.lead = lead
        self.over = False
        self.timers = timers = make_timers(lambda tag: self.feed(TimerFired(tag)))
        self._clock, self._note = clock, note
        self._finish, self._explain = finish, explain
        self._standbys, self._arbiter = standbys, arbiter
        self._shards, self._workers = shards, workers
        self._table: dict[type, Callable[[Any], None]] = {
            Send: send,
            Log: lambda effect: log(effect.record),
            SetTimer: lambda effect: timers.set(effect.tag, effect.at),
            CancelTimer: lambda effect: timers.cancel(effect.tag),
            Evaluate: workers.order,
            SaveModel: workers.order,
            Dismiss: self._dismiss,
            Forget: lambda effect: self._forget(effect.member),
            Redirect: workers.redirect,
            Recruit: lambda effect: shards.recruit(effect.shard),
            Retire: lambda effect: shards.retire(effect.copy),
            Seal: checkpoints.seal,
            Discard: lambda effect: checkpoints.discard(effect.number),
            Appoint: lambda effect: standbys.appoint(effect.number),
            Claim: self._claim,
            Consult: lambda effect: arbiter.consult(effect.number),
            Depart: lambda effect: depart(effect.reason),
            Finish: self._end,
        }

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, and execute what it answers.

        An exception, of a policy for instance, which may be anybody's code, ends the run and not the process.
        """
        if self.over and not isinstance(event, _AFTER_THE_END):
            return
        now = self._clock()
        try:
            effects = self.lead.handle(event, now)
        except Exception as error:  # noqa: BLE001  whatever it is becomes the run's outcome
            effects = self.lead.handle(RunBroken(self._explain(error, event)), now)
        self._note(event, effects)
        self.execute(effects)

    def execute(self, effects: Iterable[Effect]) -> None:
        """Execute effects in their order."""
        table = self._table
        try:
            for effect in effects:
                table[type(effect)](effect)
        except Exception as error:  # noqa: BLE001  what was decided is half done, and the run must not go on like that
            broken = self._explain(error, None)
            if self.lead.coordinator.state.stopping:
                self._end(Finish("failed", str(broken), broken))
            else:
                self.feed(RunBroken(broken))

    def close(self) -> None:
        """Let no timer fire any more."""
        self.timers.close()

    def _end(self, effect: Finish) -> None:
        self.over = True
        self._finish(effect)

    def _dismiss(self, effect: Dismiss) -> None:
        self._forget(effect.member)
        self._workers.dismiss(effect.member, effect.reason)

    def _forget(self, member: str) -> None:
        self._shards.forget(member, partial(self.lead.coordinator.state.last_position, member))

    def _claim(self, effect: Claim) -> None:
        self._standbys.suspect(effect.number)
        self._arbiter.claim(effect.number)
