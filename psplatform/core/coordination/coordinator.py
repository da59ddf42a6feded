"""The coordinator: every event goes to the component it concerns, then the policy is asked until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from psplatform.core.coordination.ending import Ending, Phase
from psplatform.core.coordination.members.hosts import Hosts
from psplatform.core.coordination.members.membership import Deaths, Membership
from psplatform.core.coordination.members.reconciliation import Reconciliation
from psplatform.core.coordination.order.admission import Admission
from psplatform.core.coordination.order.asking import Asking, PolicyFailed
from psplatform.core.coordination.order.commits import Commits
from psplatform.core.coordination.order.divergence import Divergence
from psplatform.core.coordination.order.releases import Releases
from psplatform.core.coordination.shards.checkpoints import DUE, OVERDUE, Checkpoints, capture, restore
from psplatform.core.coordination.shards.copies import Copies
from psplatform.core.coordination.shards.failovers import Failovers
from psplatform.core.coordination.shards.recruits import Recruits
from psplatform.core.coordination.state import PULLS, TRANSFERS, State
from psplatform.core.coordination.takeover import Takeover
from psplatform.core.coordination.transfers.gradients import Transfers
from psplatform.core.coordination.transfers.interfaces import Interfaces
from psplatform.core.coordination.transfers.offers import Offers
from psplatform.core.coordination.transfers.pulls import Pulls
from psplatform.core.coordination.transfers.servers import Servers
from psplatform.core.plan import Plan
from psplatform.core.policy import Change, Policy
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect
from psplatform.core.protocol.events import (
    Begin,
    CheckpointFailed,
    CheckpointSealed,
    CoordinatorLost,
    CopyAwake,
    CopyLost,
    CopyMisplaced,
    CopyReady,
    Evaluated,
    EvaluationFailed,
    EvaluationLost,
    EvaluatorDied,
    MemberDied,
    MemberLost,
    ModelSaved,
    NoCopy,
    ProcessesChanged,
    RunBroken,
    RunFailed,
    SaveFailed,
    StopRequested,
    TimerFired,
)
from psplatform.core.transfers import TransferPlanner
from psplatform.errors import ClusterError, StoreError, UserCodeError


class Coordinator:
    """The state machine of one run.

    Parameters
    ----------
    plan
        What the job asks for.
    policy
        Answers the four questions.
    term
        Fencing number of this coordinator among those the run has had.
    resume
        The coordinator's part of the checkpoint that the run goes on from.
    processes
        Where the copies and, as ``coordinator``, this are, by name: what the log calls them.
    planner
        Plans the transfers of gradients that workers offer; ``None`` where they are sent as soon as computed.
    """

    def __init__(
        self,
        plan: Plan,
        policy: Policy,
        *,
        term: int = 1,
        resume: Mapping[str, Any] | None = None,
        processes: Mapping[str, str] | None = None,
        planner: TransferPlanner | None = None,
    ) -> None:
        self.state = State(plan, policy, term)
        self.state.processes.update(processes or {})
        if resume is not None:
            restore(self.state, dict(resume))
        self._asking = Asking(policy)
        self.checkpoints = Checkpoints(self.state, partial(capture, self.state))
        self.ending = Ending(self.state, self.checkpoints)
        self.divergence = Divergence(self.state, self.ending)
        self.commits = Commits(self.state, self._asking, self.divergence, self.ending, self.checkpoints)
        self.admission = Admission(self.state, self._asking, self.commits, self.divergence, self.ending)
        self.hosts = Hosts(self.state.roster)
        self.servers = Servers(self.state, planner)
        self.interfaces = Interfaces(self.state, planner)
        self.offers = Offers(self.state.roster)
        self.transfers = Transfers(self.state, self.admission, self.hosts, self.offers, planner)
        self.pulls = Pulls(self.state, self.hosts, planner)
        self.deaths = Deaths(self.state, self.ending)
        self.membership = Membership(self.state, self.divergence, self.deaths)
        self.failovers = Failovers(self.state, self.admission, self.commits)
        self.recruits = Recruits(self.state)
        self.copies = Copies(self.state, self.recruits, self.failovers, self.ending, self.checkpoints)
        self.releases = Releases(self.state, self._asking, self.admission, self.commits, self.pulls)
        self.reconciliation = Reconciliation(self.state, self.admission)
        self.takeover = Takeover(
            self.state,
            self.admission,
            self.membership,
            self.commits,
            self.copies,
            self.ending,
            self.checkpoints,
            offers=self.offers,
            reconciliation=self.reconciliation,
            recruits=self.recruits,
        )
        self._handlers = {**self._of_drivers(), **self._of_roles()}

    def _of_drivers(self) -> dict[type, Callable[[Any], None]]:
        return {
            Begin: self._on_begin,
            TimerFired: self._on_timer,
            StopRequested: self._on_stop_requested,
            RunFailed: self._on_run_failed,
            RunBroken: self._on_run_broken,
            CopyLost: self.copies.on_lost,
            CopyMisplaced: self.copies.on_misplaced,
            CopyReady: self.copies.on_ready,
            CopyAwake: self.copies.on_awake,
            NoCopy: self.recruits.on_none,
            ProcessesChanged: self.recruits.on_processes_changed,
            CheckpointSealed: self.checkpoints.on_sealed,
            CheckpointFailed: self.checkpoints.on_failed,
            MemberLost: self._on_member_gone,
            MemberDied: self.deaths.on_member_died,
            EvaluatorDied: self.deaths.on_evaluator_died,
            Evaluated: self.ending.on_evaluated,
            EvaluationLost: self.ending.on_evaluation_lost,
            EvaluationFailed: self._on_evaluation_failed,
            ModelSaved: self.ending.on_saved,
            SaveFailed: self._on_save_failed,
        }

    def _of_roles(self) -> dict[type, Callable[[Any], None]]:
        return {
            msg.Join: self._on_join,
            msg.Leave: self._on_member_gone,
            msg.Fetched: self.pulls.on_fetched,
            msg.Offer: self._on_offer,
            msg.Bundled: self._on_bundled,
            msg.Carried: self.interfaces.on_carried,
            msg.Announce: self._on_announce,
            msg.Aborted: self._on_aborted,
            msg.Failed: self._on_failed,
            msg.Gathered: self.commits.on_gathered,
            msg.Applied: self._on_applied,
            msg.Promoted: self._on_promoted,
            msg.ServerState: self.takeover.on_server_state,
            msg.WorkerState: self._on_worker_state,
            msg.InSync: self.copies.on_in_sync,
            msg.Retiring: self.copies.on_retiring,
            msg.HandedOver: self.copies.on_handed_over,
            msg.Unreachable: self.failovers.on_unreachable,
            msg.Written: self.checkpoints.on_written,
            msg.NotWritten: self.checkpoints.on_not_written,
            msg.Refused: self._on_refused,
        }

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`, which happened `now` seconds after the run's start."""
        self.state.now = now
        if not self.takeover.awaited_shards:
            self._do(event)
        elif not self.takeover.defers(event):
            self._do(event)
            for kept in self.takeover.take_deferred():
                self._do(kept)
            if not self.takeover.awaited_shards:
                self.transfers.resume()
                self.servers.follow()
                self.membership.forget_again()
                self.membership.forget_removed()
        return self.state.take_effects()

    def _do(self, event: Any) -> None:
        self._asking.event = event
        try:
            self._handlers[type(event)](event)
            if not self.takeover.awaited_shards:
                self.ending.advance()
                self.releases.settle()
                self.membership.forget_removed()
        except PolicyFailed as failed:
            self.ending.on_policy_failed(failed.failure)

    def take_over(self, term: int, reason: CoordinatorLost, now: float, process: str = "") -> list[Effect]:
        """Become the coordinator of `term`, having handled what the one before did; return what to do first.

        Of a run that is over that is to end it: perhaps the one before has not come to that.
        """
        self.state.now = now
        if self.ending.phase is Phase.OVER:
            self.state.term = term
            self.ending.finish()
        else:
            self.takeover.begin(term, reason, process)
            self.transfers.on_taken_over()
            self.pulls.forget()
        return self.state.take_effects()

    def _on_begin(self, event: Begin) -> None:
        self.state.limit("absence", self.state.plan.absence_limit_s)
        self.copies.begin()
        self.checkpoints.begin()
        self.servers.begin()
        if self.state.version:  # recovered, perhaps where it was to end
            self.ending.check()

    def _on_timer(self, event: TimerFired) -> None:
        plan = self.state.plan
        if event.tag == "seconds":
            self.ending.begin("seconds", f"{plan.stop.seconds:g} s are over")
        elif event.tag == "absence":
            limit = plan.absence_limit_s
            remedy = "start a Dask worker, and go on with `psplatform recover STORE` if there is a checkpoint"
            self.ending.fail(ClusterError(f"no live worker for {limit:g} s; {remedy}"))
        elif event.tag == "finish":
            self.ending.on_overdue()
        elif event.tag == TRANSFERS:
            self.transfers.on_timer()
        elif event.tag == PULLS:
            self.pulls.plan()
        elif event.tag in (DUE, OVERDUE):
            self.checkpoints.on_timer(event.tag)
        elif event.tag.startswith("start:"):
            self.releases.on_due(event.tag.removeprefix("start:"))
        else:
            self.state.changes.add(Change.TIMER)

    def _on_join(self, message: msg.Join) -> None:
        self.hosts.heard(message.member, message.host)
        self.membership.on_join(message)

    def _on_offer(self, message: msg.Offer) -> None:
        self.transfers.on_offer(message)
        self.pulls.on_computed(message.announce)

    def _on_announce(self, message: msg.Announce) -> None:
        self.pulls.on_computed(message)
        self.transfers.on_announce(message)
        self.reconciliation.on_announce(message)
        self.transfers.ask_again()

    def _on_bundled(self, message: msg.Bundled) -> None:
        self.transfers.on_bundled(message)
        self.transfers.ask_again()

    def _on_aborted(self, message: msg.Aborted) -> None:
        self.admission.on_aborted(message)
        self._have_closed()

    def _on_promoted(self, message: msg.Promoted) -> None:
        if self.takeover.awaited_shards:
            self.takeover.on_promoted(message)
        else:
            self.copies.on_promoted(message)
            self.servers.follow()

    def _on_worker_state(self, message: msg.WorkerState) -> None:
        self.reconciliation.on_worker_state(message)
        self._have_closed()

    def _on_applied(self, message: msg.Applied) -> None:
        self.copies.note_applied(message)
        self.takeover.note_applied(message)
        self.commits.on_applied(message)
        self.transfers.note_shown()

    def _on_failed(self, message: msg.Failed) -> None:
        member = self.state.roster.by_name.get(message.member)
        where = f"worker {member.slot} ({member.process})" if member else "a worker"
        self.ending.fail(_user_code_error(f"gradient {message.sequence} of {where}", message))

    def _on_evaluation_failed(self, event: EvaluationFailed) -> None:
        self.ending.on_evaluation_failed(_user_code_error("the evaluation on held-out data", event))

    def _on_refused(self, message: msg.Refused) -> None:
        """Do nothing: it was out of date; a server that knows a higher term is heard before the message comes here."""

    # Methods, not lambdas: a copy of this coordinator must act on itself.

    def _on_stop_requested(self, event: StopRequested) -> None:
        self.ending.begin("stopped", event.reason)

    def _on_run_failed(self, event: RunFailed) -> None:
        self.ending.fail(event.error)

    def _on_run_broken(self, event: RunBroken) -> None:
        self.ending.give_up(event.error)

    def _on_member_gone(self, event: MemberLost | msg.Leave) -> None:
        self.membership.remove(event.member, event.reason)
        self._have_closed()

    def _have_closed(self) -> None:
        """Expect nothing any more of workers that are gone or have stopped: others may send."""
        self.transfers.forget_closed()
        self.transfers.ask_again()

    def _on_save_failed(self, event: SaveFailed) -> None:
        self.ending.give_up(StoreError(event.text, store=event.store))


def _user_code_error(where: str, report: msg.Failed | EvaluationFailed) -> UserCodeError:
    text = f"{report.kind} in the user's code while computing {where}: {report.text}"
    return UserCodeError(text, kind=report.kind, user_traceback=report.traceback)
