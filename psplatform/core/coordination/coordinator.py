"""The coordinator's front: every event goes to the desk it concerns, then the policy is asked until nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core import messages as msg
from psplatform.core.coordination.admission import Admission
from psplatform.core.coordination.asking import Asking, PolicyFailed
from psplatform.core.coordination.commits import Commits
from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.membership import Membership
from psplatform.core.coordination.releases import Releases
from psplatform.core.coordination.state import State
from psplatform.core.effects import Effect
from psplatform.core.events import (
    Begin,
    Evaluated,
    EvaluationFailed,
    EvaluationLost,
    MemberLost,
    ModelSaved,
    RunBroken,
    RunFailed,
    SaveFailed,
    ServerLost,
    StopRequested,
    TimerFired,
)
from psplatform.core.plan import Plan
from psplatform.core.policy import Change, Policy
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
    epochs
        Fencing number of each shard's server; all 1 where none is given.
    """

    def __init__(self, plan: Plan, policy: Policy, *, term: int = 1, epochs: tuple[int, ...] | None = None) -> None:
        self.state = State(plan, policy, term, epochs or (1,) * plan.shards)
        self._asking = Asking(policy)
        self.ending = Ending(self.state)
        self.commits = Commits(self.state, self._asking, self.ending)
        self.admission = Admission(self.state, self._asking, self.commits, self.ending)
        self.membership = Membership(self.state, self.admission, self.ending)
        self.releases = Releases(self.state, self._asking, self.admission, self.commits, self.ending)
        self._handlers: dict[type, Callable[[Any], None]] = {
            Begin: self._on_begin,
            TimerFired: self._on_timer,
            StopRequested: lambda event: self.ending.begin("stopped", event.reason),
            RunFailed: lambda event: self.ending.fail(event.error),
            RunBroken: lambda event: self.ending.give_up(event.error),
            ServerLost: self._on_server_lost,
            MemberLost: lambda event: self.membership.remove(event.member, event.reason),
            Evaluated: self.ending.on_evaluated,
            EvaluationLost: self.ending.on_evaluation_lost,
            EvaluationFailed: self._on_evaluation_failed,
            ModelSaved: self.ending.on_saved,
            SaveFailed: lambda event: self.ending.give_up(StoreError(event.text, store=event.store)),
            msg.Join: self.membership.on_join,
            msg.Leave: lambda message: self.membership.remove(message.member, message.reason),
            msg.Announce: self.admission.on_announce,
            msg.Aborted: self.admission.on_aborted,
            msg.Failed: self._on_failed,
            msg.Gathered: self.commits.on_gathered,
            msg.Applied: self.commits.on_applied,
            msg.Refused: self._on_refused,
        }

    def handle(self, event: Any, now: float) -> list[Effect]:
        """Return what to do about `event`, which happened `now` seconds after the run's start."""
        self.state.now = now
        self._asking.event = event
        try:
            self._handlers[type(event)](event)
            self.releases.settle()
        except PolicyFailed as failed:
            self.ending.on_policy_failed(failed.failure)
        return self.state.take_effects()

    def _on_begin(self, event: Begin) -> None:
        self.state.limit("absence", self.state.plan.absence_limit_s)

    def _on_timer(self, event: TimerFired) -> None:
        plan = self.state.plan
        if event.tag == "seconds":
            self.ending.begin("seconds", f"{plan.stop.seconds:g} s are over")
        elif event.tag == "absence":
            limit = plan.absence_limit_s
            self.ending.fail(ClusterError(f"no live worker for {limit:g} s; start a Dask worker and run the job again"))
        elif event.tag == "finish":
            self.ending.on_overdue()
        elif event.tag.startswith("start:"):
            self.releases.on_due(event.tag.removeprefix("start:"))
        else:
            self.state.changes.add(Change.TIMER)

    def _on_server_lost(self, event: ServerLost) -> None:
        self.ending.give_up(
            ClusterError(
                f"the server of shard {event.shard} at {event.peer} is lost ({event.reason}); "
                "start the job again on the remaining workers",
                peer=event.peer,
            )
        )

    def _on_failed(self, message: msg.Failed) -> None:
        member = self.state.roster.get(message.member)
        where = f"worker {member.slot} ({member.process})" if member else "a worker"
        self.ending.fail(_user_code_error(f"gradient {message.sequence} of {where}", message))

    def _on_evaluation_failed(self, event: EvaluationFailed) -> None:
        self.ending.on_evaluation_failed(_user_code_error("the evaluation on held-out data", event))

    def _on_refused(self, message: msg.Refused) -> None:
        if message.term > self.state.term:
            self.ending.give_up(
                ClusterError(f"a coordinator of term {message.term} has taken over this run; attach to it instead")
            )


def _user_code_error(where: str, report: msg.Failed | EvaluationFailed) -> UserCodeError:
    text = f"{report.kind} in the user's code while computing {where}: {report.text}"
    return UserCodeError(text, kind=report.kind, user_traceback=report.traceback)
