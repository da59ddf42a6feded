"""Stop conditions, and the orderly end of a run.

An ending run goes through: *draining* (no new commit; the decided ones become visible) -> *evaluating* the last
version, unless the run ended because an evaluation reached the target -> *saving* the model -> *over*.  Where
checkpoints are written, one of the last version is written meanwhile.  The whole takes at most `Plan.finish_limit_s`;
what is missing then is named.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from psplatform.core import reasons
from psplatform.core.coordination.shards.checkpoints import Checkpoints
from psplatform.core.coordination.state import PULLS, TRANSFERS, State
from psplatform.core.protocol.effects import CancelTimer, Evaluate, Finish, SaveModel, Send
from psplatform.core.protocol.events import Evaluated, EvaluationLost, ModelSaved
from psplatform.core.protocol.messages import Stop
from psplatform.core.protocol.names import Role
from psplatform.core.reasons import Reason
from psplatform.errors import ClusterError, ConfigurationError, PsplatformError


class Phase(Enum):
    """How far a run has come; ordered."""

    RUNNING = "running"
    DRAINING = "draining"
    EVALUATING = "evaluating"
    SAVING = "saving"
    OVER = "over"


class Ending:
    """Decides that a run ends, and brings it to its end.

    Attributes
    ----------
    evaluators_died
        Evaluators whose process has died since the last evaluation.
    lost_at_work
        Whether an evaluation was under way when the last evaluator was lost.
    """

    def __init__(self, state: State, checkpoints: Checkpoints) -> None:
        self._state = state
        self._checkpoints = checkpoints
        self._saved = False
        self.evaluators_died = 0
        self.lost_at_work = False
        self.phase = Phase.RUNNING
        self._evaluates = state.plan.evaluates
        self._in_flight = False
        self._next_evaluation = state.plan.evaluate_every
        self._last = Evaluated(-1, None, None)
        self._outcome = ""
        self._detail = ""
        self._failure: PsplatformError | None = None

    @property
    def failure(self) -> PsplatformError | None:
        """Why the run has failed, if it has."""
        return self._failure

    # --- while the run goes on ---

    def check(self) -> None:
        """Check the conditions that count commits and samples, and evaluate at the interval."""
        state, stop = self._state, self._state.plan.stop
        if stop.updates is not None and state.version >= stop.updates:
            self.begin("updates", f"{state.version} updates")
        elif stop.epochs is not None and state.epochs_done >= stop.epochs:
            self.begin("epochs", f"{state.epochs_done:.2f} epochs")
        else:
            self._evaluate_if_due()

    def _evaluate_if_due(self) -> None:
        every = self._state.plan.evaluate_every
        if not self._evaluates or every is None or self._next_evaluation is None or self._in_flight:
            return
        if self._state.version >= self._next_evaluation:
            self._next_evaluation = self._state.version + every
            self._evaluate()

    def _evaluate(self) -> None:
        self._in_flight = True
        best = self._state.progress.best if self._state.plan.watch.keep else None
        self._state.effects.append(Evaluate(self._state.version, self._evaluates, best))

    def on_evaluated(self, event: Evaluated) -> None:
        """Take an evaluation; end the run if it reached the target, or if patience is at its end."""
        self._in_flight = False
        self.evaluators_died = 0
        self._last = event
        self._note(event)
        plan = self._state.plan
        reached = plan.stop.reached(event.loss, event.accuracy, event.values, plan.watch.lower)
        if reached and self._failure is None and self.phase in (Phase.RUNNING, Phase.DRAINING):
            # The target may be met by an evaluation that was under way when another condition ended the run.
            self._outcome, self._detail = "reached target", reached
            self.begin(self._outcome, self._detail)
        elif not self._state.stopping and event.values:
            self._check_measured(event)
            self._check_patience(event)
        self._evaluate_if_due() if not self._state.stopping else self.advance()

    def _note(self, event: Evaluated) -> None:
        state = self._state
        more: dict[str, Any] = {"metrics": dict(event.metrics)} if event.metrics else {}
        more |= {"kept": True} if event.kept else {}
        state.log("evaluated", version=event.version, loss=event.loss, accuracy=event.accuracy, **more)
        if event.trouble:
            state.log("note", text=f"version {event.version} is the best so far, but was not saved: {event.trouble}")
        if event.values:
            state.progress.note(event, state.plan.watch, state.plan.stop.min_delta)

    def _check_measured(self, event: Evaluated) -> None:
        """Fail where something waits for a metric that evaluations do not give."""
        plan = self._state.plan
        waiting = dict.fromkeys(plan.stop.targets or {}, "a target")
        if plan.stop.target_accuracy is not None:
            waiting["accuracy"] = "a target"
        if plan.stop.patience is not None or plan.watch.keep:
            waiting.setdefault(plan.watch.metric, "patience" if plan.stop.patience is not None else "keep_best")
        for name, what in waiting.items():
            if name not in event.values:
                text = f"{what} waits for {name}, but evaluations of this task give {', '.join(event.values)}"
                field = "stop" if what == "a target" else "watch"
                self.fail(ConfigurationError(f"{text}; name one of these", field=field))
                return

    def _check_patience(self, event: Evaluated) -> None:
        watch, progress, patience = self._state.plan.watch, self._state.progress, self._state.plan.stop.patience
        if patience is None or self._state.stopping:
            return
        if progress.waited >= patience:
            wanted = "finite" if progress.best is None else f"better than {progress.best:.4f}"
            more = "" if progress.best is None else f"; version {progress.version} is the best"
            self.begin("patience", f"{watch.metric} was not {wanted} in {patience} evaluations{more}")

    def on_evaluation_lost(self, event: EvaluationLost) -> None:
        """Ask again where the end of the run depends on it; else the next interval will."""
        self.lost_at_work, self._in_flight = self._in_flight, False
        self._state.log("note", text=f"evaluation lost: {event.reason}")
        if self.phase in (Phase.EVALUATING, Phase.SAVING):
            self.phase = Phase.EVALUATING
            self._evaluate()
        else:
            self.advance()

    def on_evaluation_failed(self, failure: PsplatformError) -> None:
        """End the run because the user's evaluation raises; the model is saved without another try."""
        self._in_flight = False
        self._evaluates = False
        if self._state.stopping:
            self._blame(failure)
        if self.phase is Phase.EVALUATING:
            self._evaluate()
        elif self._state.stopping:
            self.advance()
        else:
            self.fail(failure)

    def on_policy_failed(self, failure: PsplatformError) -> None:
        """End the run because the policy fails; one that is ending goes on without it."""
        if not self._state.stopping:
            self.fail(failure)
            return
        self._blame(failure)
        self.advance()

    # --- the end ---

    def fail(self, failure: PsplatformError) -> None:
        """End the run because of `failure`; the model reached so far is still saved."""
        self.begin("failed", str(failure.args[0]), failure)

    def give_up(self, failure: PsplatformError) -> None:
        """End the run at once: the model cannot be saved any more."""
        if self.phase is Phase.OVER:
            return
        self._enter_draining("failed", str(failure.args[0]), failure)
        if self._failure is not None and self._failure is not failure:
            self._state.log("note", text=str(failure.args[0]))
        self._blame(failure)
        self._conclude()

    def _blame(self, failure: PsplatformError) -> None:
        """Let the run have failed because of `failure`; the first one stands."""
        if self._failure is None:
            self._outcome, self._detail, self._failure = "failed", str(failure.args[0]), failure

    def begin(self, outcome: str, detail: str, failure: PsplatformError | None = None) -> None:
        """End the run in good order: drain, evaluate, save.  The first reason given stands."""
        if not self._state.stopping:
            self._enter_draining(outcome, detail, failure)
            self.advance()

    def _enter_draining(self, outcome: str, detail: str, failure: PsplatformError | None) -> None:
        if self._state.stopping:
            return
        state = self._state
        self.phase, state.stopping = Phase.DRAINING, True
        self._outcome, self._detail, self._failure = outcome, detail, failure
        for commit_log in state.commit_logs:
            held, commit_log.held = commit_log.held, []
            for gradient in (*commit_log.pool.drain(), *held):
                state.drop(commit_log, gradient, Reason(reasons.STOPPED, "the run ended before its round"))
        for member in state.roster.members():
            state.effects.append(Send(Role.member(member.name), Stop(state.term, detail)))
            state.effects.append(CancelTimer(f"start:{member.name}"))
        for tag in (
            "absence",
            "seconds",
            "checkpoint due",
            TRANSFERS,
            PULLS,
            *(commit_log.timer for commit_log in state.commit_logs),
        ):
            state.effects.append(CancelTimer(tag))
        state.limit("finish", state.plan.finish_limit_s)

    def advance(self) -> None:
        """Go on to the next phase if what this one waits for has come."""
        if not self._state.stopping:
            return
        if self.phase is Phase.DRAINING and not self._state.open_commits and not self._in_flight:
            self._checkpoints.close()
            reached = self._outcome == "reached target"
            self.phase = Phase.SAVING if reached else Phase.EVALUATING
            if reached:
                self._save()
            else:
                self._evaluate()
        elif self.phase is Phase.EVALUATING and not self._in_flight:
            self.phase = Phase.SAVING
            self._save()
        elif self.phase is Phase.SAVING and self._saved and not self._checkpoints.under_way:
            self._conclude()

    def _save(self) -> None:
        self._state.effects.append(SaveModel(self._last.version))

    def on_saved(self, event: ModelSaved) -> None:
        """Finish when the last checkpoint is written or given up, too."""
        if self.phase is Phase.SAVING:
            self._saved = True
            self.advance()

    def on_overdue(self) -> None:
        """Finish without what did not come in time, and say what that was."""
        if self.phase is Phase.SAVING and self._saved:
            self._checkpoints.give_up(f"not complete {self._state.plan.finish_limit_s:g} s after the run began to end")
            self._conclude()
            return
        commits = self._state.open_commits
        waited_for = {
            Phase.DRAINING: f"{commits} commits to become visible" if commits else "the evaluation under way",
            Phase.EVALUATING: "the last evaluation",
            Phase.SAVING: "the model to be saved",
        }.get(self.phase)
        if waited_for is not None:
            limit = self._state.plan.finish_limit_s
            self.give_up(ClusterError(f"waited {limit:g} s for {waited_for}; the event log is complete up to here"))

    def repeat(self, *, evaluator_lost: bool = False) -> None:
        """Ask again for what a coordinator that is gone has asked for.

        Where the evaluator is lost, that is left to `on_evaluation_lost`, which follows: asked for here, it would be
        done by the next evaluator although nobody waits for it any more.
        """
        if not evaluator_lost:
            self._ask_evaluator_again()
        if self.phase in (Phase.EVALUATING, Phase.SAVING):
            self._checkpoints.close()
        if self._state.stopping:
            for member in self._state.roster.members():
                self._state.effects.append(Send(Role.member(member.name), Stop(self._state.term, self._detail)))

    def _ask_evaluator_again(self) -> None:
        if self._in_flight:
            self._evaluate()
        elif self.phase is Phase.SAVING:
            self._saved = False
            self._save()

    def _conclude(self) -> None:
        self.phase, self._state.stopping = Phase.OVER, True
        self._checkpoints.give_up("the run ended before it was complete")
        last, state = self._last, self._state
        state.effects.append(CancelTimer("finish"))
        state.log(
            "finished",
            outcome=self._outcome,
            detail=self._detail,
            version=last.version if last.version >= 0 else state.version,
            loss=last.loss,
            accuracy=last.accuracy,
            **({"metrics": dict(last.metrics)} if last.metrics else {}),
            seconds=state.seconds,
        )
        self.finish()

    def finish(self) -> None:
        """End the run, of which everything is said; where a coordinator is lost while it does, its successor does."""
        self._state.effects.append(Finish(self._outcome, self._detail, self._failure))
