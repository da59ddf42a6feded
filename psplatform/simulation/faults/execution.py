"""One trial, to its end or to the first violation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.coordination.invariants import check_tally
from psplatform.core.policy import Policy
from psplatform.core.protocol.effects import Finish
from psplatform.errors import ClusterError, InvariantViolation, ProcessDied, PsplatformError
from psplatform.memory.training import TensorArithmetic
from psplatform.policies.registry import make_policy
from psplatform.simulation.faults.checks.afterwards import (
    check_after_the_end,
    check_archived,
    check_forgotten,
    check_whole_decisions,
)
from psplatform.simulation.faults.checks.coverage import Coverage
from psplatform.simulation.faults.checks.distance import Distances
from psplatform.simulation.faults.checks.histories import violated
from psplatform.simulation.faults.checks.observation import Observation
from psplatform.simulation.faults.checks.participation import Case
from psplatform.simulation.faults.checks.placing import Placing
from psplatform.simulation.faults.checks.promises import (
    check_batches,
    check_batches_once,
    check_handed_over,
    check_lost_versions,
    check_names,
    check_order,
    check_promises,
    check_same_on_all_shards,
    check_told_losses,
)
from psplatform.simulation.faults.checks.replacement import Replacement
from psplatform.simulation.faults.checks.serial import SerialLoop, check_serial
from psplatform.simulation.faults.checks.staleness import Staleness
from psplatform.simulation.faults.injection import Injection
from psplatform.simulation.faults.preparation import reference_of, run_of, tensors_of
from psplatform.simulation.faults.schedules.hosts import Nannies, machines_of
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import LIVENESS, Copying, Trial
from psplatform.simulation.faults.storage import Storage
from psplatform.simulation.faults.world import TrialWorld

_EVENTS: Final = 60_000
"""More than any trial needs: one that is not over then turns in circles."""

_PATIENCE_S: Final = 30.0
"""Seconds after the last fault and the last visible commit after which none is to be expected: leases, a takeover, a
promotion and the absence of all workers take less."""

_REINFORCEMENTS: Final = 6

PROBED: Final = 0.02
"""Share of the messages after which old ones are tried."""


@dataclass
class Verdict:
    """What came of a trial.

    Attributes
    ----------
    invariant, found
        The first that was violated, and how; empty where none was.
    outcome
        How the run ended: as its last effect says, or ``lost`` where nobody was left to end it.
    met
        Faults by kind and phase.
    counts
        How often what happened that faults provoke.
    """

    trial: Trial
    invariant: str = ""
    found: str = ""
    outcome: str = ""
    detail: str = ""
    events: int = 0
    seconds: float = 0.0
    met: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def summary(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "seed": self.trial.seed,
            "invariant": self.invariant or None,
            "found": self.found,
            "outcome": self.outcome,
            "detail": self.detail,
            "events": self.events,
            "seconds": self.seconds,
            "schedule": self.trial.to_plain(),
        }


class Execution:
    """A trial that can begin.

    Attributes
    ----------
    run, reference
        The run, and what is true of it.
    """

    def __init__(self, trial: Trial, policy: Policy | None = None) -> None:
        self.trial = trial
        self.coverage = Coverage()
        self.storage = Storage()
        self.policy = policy or make_policy(trial.policy, trial.parameters)
        self._world = TrialWorld(
            trial.seed, trial.noise, sends=trial.fabric, again_s=trial.again_s, overwritten=trial.overwritten
        )
        self.reference = reference_of(trial, self.policy, self.storage)
        self._machines = machines_of(trial)
        self.run = run_of(trial, self.policy, self.reference, self._world, self._machines)
        self._nannies = Nannies(self.run, self._machines, trial.nannies) if self._machines is not None else None
        self._placing = Placing(self.run)
        self._replacement: Replacement | None = None
        if self._machines is not None:
            self._machines.on_placing = self._placing
            worth = self._placing.is_worth_trying
            self._replacement = Replacement(self.run, self._machines, trial.most_workers, worth)
        self._world.process_of = self.run.process_of
        self._world.server_of = lambda shard: self.run.coordinator.state.shards[shard].server
        self.observation = Observation(self.run, self.reference, self._world.was_heard)
        self._staleness = Staleness(self.run, trial.seed, PROBED)
        self.run.network.on_arrival = self._staleness.hand_over
        self._distances = Distances(self.run, self.reference, trial.copying or Copying())
        self._shown: Any = None
        self._adopted: list[int] = []
        self._shown_at = 0.0
        self._reinforced = False
        self._injection = Injection(self.run, self._world, self.storage, trial.faults, self._note, self._machines)

    def _note(self, fault: Fault, process: str) -> None:
        self.coverage.note(self.run, fault)

    def to_its_end(self) -> Verdict:
        """Run the trial, and judge it."""
        verdict = Verdict(self.trial, met=self.coverage.met, counts=self.observation.counts)
        try:
            verdict.outcome, verdict.detail = self._run_to_its_end()
            self._check_end()
            self._check_after_the_end()
        except InvariantViolation as violation:
            name, named, found = str(violation.args[0]).partition(" is violated: ")
            verdict.invariant, verdict.found = (name, found) if named else ("error", name)
        except PsplatformError as error:
            verdict.invariant, verdict.found = "error", f"{type(error).__name__}: {error}"
        except Exception as error:  # noqa: BLE001  a role that raises is what is looked for
            verdict.invariant, verdict.found = "error", f"{type(error).__name__}: {error}"
        verdict.events, verdict.seconds = self.run.agenda.done, self.run.agenda.now
        self._count(verdict.counts)
        return verdict

    # --- on the way ---

    def _run_to_its_end(self) -> tuple[str, str]:
        run, injection = self.run, self._injection
        for number in range(_EVENTS):
            if run.finish is not None:
                return self._finished(run.finish)
            if self._nobody_leads():
                return "lost", "the coordinator is lost, and no standby takes over"
            injection.before_event(number)
            if self._nannies is not None:
                self._nannies.look()  # at once: nothing is placed in a process that is known to have ended
            if (self._stands_still() or not run.agenda.do_next()) and not self._reinforce():
                break
            self._check_now()
        raise violated("liveness", f"the run does not end; at {run.agenda.now:.2f} s {self._who_waits()}")

    def _stands_still(self) -> bool:
        """Whether nothing has become visible for so long that nothing will."""
        run, coordinator = self.run, self.run.coordinator
        shown = sum(one.visible for one in coordinator.state.shards), len(run.leads), coordinator.ending.phase
        if shown != self._shown:
            self._shown, self._shown_at = shown, run.agenda.now
        return run.agenda.now - max(self._shown_at, self._injection.quiet_at) > _PATIENCE_S and not self._injection.left

    def _reinforce(self) -> bool:
        """Let processes come from which replicas can be made, once, where servers wait for one as they were told to."""
        waits = any(one.replaced for one in self.run.coordinator.state.shards)
        if not waits or self._reinforced or self.trial.mode == LIVENESS:
            return False
        self._reinforced = True
        self._shown_at = self.run.agenda.now
        self.run.reinforce(_REINFORCEMENTS)
        return True

    def _check_now(self) -> None:
        self._note_takeover()
        if self.reference.dirty:
            self._distances.check(self.reference.dirty)
            self.reference.dirty.clear()
        check_tally(self.run.coordinator.state)
        if self._replacement is not None:
            self._replacement.check(self._injection.quiet_at)
            self._placing.look()

    def _note_takeover(self) -> None:
        adopted = self.run.coordinator.takeover.adopted
        if adopted and adopted is not self._adopted:
            self._adopted = adopted
            self.reference.settled.append(adopted)

    def _nobody_leads(self) -> bool:
        run = self.run
        if not run.processes.is_dead(run.leads[-1].name) and not run.leads[-1].lead.replaced:
            return False
        return run.standby is None or run.processes.is_dead(run.standby.name)

    def _finished(self, finish: Finish) -> tuple[str, str]:
        if finish.outcome == "failed":
            named = isinstance(finish.failure, ClusterError | ProcessDied)
            if not named or self.trial.mode == LIVENESS:
                raise violated("liveness", f"the run failed although enough was alive: {finish.detail}")
        elif finish.outcome != "updates":
            raise violated("liveness", f"the run ended by {finish.outcome}: {finish.detail}")
        return finish.outcome, finish.detail

    def _who_waits(self) -> str:
        run = self.run
        waits = run.workers.waiting
        state = run.coordinator.state
        commit_logs = [(commit_log.position, len(commit_log.ledger)) for commit_log in state.commit_logs]
        servers = [(one.server, one.epoch, one.promoting, one.in_sync, one.joining) for one in state.shards]
        return (
            f"these wait: {waits}; phase {run.coordinator.ending.phase.value}, commit logs {commit_logs}, "
            f"shards {servers}, "
            f"takeover awaits {sorted(run.coordinator.takeover.awaited_shards)}"
        )

    # --- at the end ---

    def _check_end(self) -> None:
        if self.trial.mode == LIVENESS and self.run.finish is None:
            raise violated("liveness", "nobody is left to lead the run although enough was alive")
        check_whole_decisions(self.run, self.storage)
        check_order(self.run.records)
        check_names(self.run.records)
        check_told_losses(self.run.records)
        check_batches(self.run, self.reference)
        check_batches_once(self.run.records, self.observation.gradients.batches)
        check_lost_versions(self.run.records, self.observation.gradients.labels)
        check_same_on_all_shards(self.run, self.reference)
        self.observation.counts["serial loops"] += self._equals_serial_loop()
        check_handed_over(self.run.records, self.observation.handed_over, self.reference.histories.values())
        check_promises(self.trial.policy, Case(self.policy, self.run.plan, self.run.records))

    def _check_after_the_end(self) -> None:
        if self.run.finish is not None:
            check_after_the_end(self.run)
            check_forgotten(self.run, self.observation.dismissed)
            check_archived(self.run, self.observation.archiving - self.reference.archived)

    def _equals_serial_loop(self) -> bool:
        if not self.policy.traits.exact:
            return False
        arithmetic = TensorArithmetic(**tensors_of(self.trial), per_block=True)
        return check_serial(self.run, self.reference, SerialLoop(arithmetic, self.trial.clip))

    def _count(self, counts: Counter[str]) -> None:
        run = self.run
        counts["takeovers"] += len(run.leads) - 1
        for one in run.records:
            if one["kind"] == "lost positions":
                counts["lost positions"] += one["last"] - one["first"] + 1
            elif one["kind"] == "checkpoint":
                counts[f"checkpoints {one['event']}"] += 1
            elif one["kind"] == "commit":
                counts["commits"] += 1
        counts["faults"] += self._injection.done
        for kind, number in self.reference.transfers.items():
            counts[f"transfers: {kind}"] += number


def run_trial(trial: Trial, policy: Policy | None = None) -> Verdict:
    """Run a trial to its end or to its first violation, under `policy` instead of the one that it names."""
    try:
        return Execution(trial, policy).to_its_end()
    except InvariantViolation as violation:
        return Verdict(trial, "error", str(violation))
