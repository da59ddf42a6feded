"""Ending and stopping the processes of an in-memory run, and who hears of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from psplatform.core.plan import Plan
from psplatform.core.protocol.events import CoordinatorLost, CopyLost, StandbyLost
from psplatform.core.supervision.leases import Grants
from psplatform.memory.processes.inhabitants import Inhabitants


@dataclass(frozen=True, slots=True)
class Supervision:
    """How losses are noticed, and what stands by.

    Attributes
    ----------
    standby
        Whether a standby takes over from a lost coordinator: there are as many as replicas of a shard.
    spares
        Copies that can be made in place of lost ones.
    notice_s
        Seconds until the end of a process is noticed.
    beat_s
        Seconds between the beats of who holds a lease; 0 for no leases: then only the end of a process is noticed.
    shortest_lease_s, longest_lease_s
        Limits of a lease.
    worker_lease_s
        Silence after which a stopped gradient worker counts as lost.
    closes
        Whether copies that nobody needs any more are closed; else they hear, and answer, all that still comes.
    look_s, answer_s, deserted_s, share_after_s
        Where roles are placed: seconds between looks at the cluster, after which a process that does not answer counts
        as failing, and until one is placed beside a copy of a shard where no gradient worker is left, or too few are.
    """

    standby: bool = False
    spares: int = 0
    notice_s: float = 0.0
    beat_s: float = 0.0
    shortest_lease_s: float = 1.0
    longest_lease_s: float = 5.0
    worker_lease_s: float = 10.0
    look_s: float = 0.5
    answer_s: float = 5.0
    deserted_s: float = 5.0
    share_after_s: float = 10.0
    closes: bool = False

    def standbys_of(self, plan: Plan) -> int:
        """Return how many standbys a run of that plan has."""
        replicas = plan.protection.replicas if plan.protection is not None else 1
        return replicas if self.standby else 0

    def grants(self) -> Grants | None:
        """Return an empty book of leases, or ``None`` where there are none."""
        return Grants(self.shortest_lease_s, self.longest_lease_s) if self.beat_s else None


class LosingRun(Inhabitants, Protocol):
    """A run whose processes can be killed and stopped."""

    supervision: Supervision

    @property
    def addresses(self) -> list[str]:
        """The processes in which roles are placed, where they are."""

    def tell_lead(self, event: Any) -> None:
        """Tell the coordinator in charge; where there is none, the next."""


class Losses:
    """Kills and stops processes of `run`, and lets those who watch them hear of it."""

    def __init__(self, run: LosingRun) -> None:
        self._run = run

    def kill(self, process: str) -> None:
        """Kill the process: every role in it is gone.  One without any role exists only where roles are placed."""
        run = self._run
        process = run.processes.of(process)
        if process in run.processes.dead or process not in (*map(run.processes.of, self._roles()), *run.addresses):
            return
        run.processes.kill(process)
        for name, worker in run.workers.nodes.items():
            if run.processes.of(name) == process:
                worker.close()
        run.agenda.enter(run.supervision.notice_s, self.notice, process)

    def _roles(self) -> list[str]:
        run = self._run
        leading = [*(one.name for one in run.leads), *(one.name for one in run.standbys.all)]
        return [*run.workers.nodes, *run.copies, *leading]

    def notice(self, process: str) -> None:
        """Let those who watch hear that a process has ended."""
        run = self._run
        silence_s, reason = run.supervision.notice_s, "closed connection"
        lead = run.leads[-1]
        for standby in list(run.standbys.all) if run.processes.of(lead.name) == process else ():
            run.processes.do(standby.name, standby.feed, CoordinatorLost(reason, silence_s))
        for number in run.standbys.numbers_in(process):
            run.tell_lead(StandbyLost(number, reason))
        for name in list(run.copies):
            if run.processes.of(name) == process:
                run.tell_lead(CopyLost(name, f"memory://{name}", reason, silence_s))
        for name in run.workers.nodes:
            if run.processes.of(name) == process:
                lead.workers.on_lost(name, "killed")

    def notice_again(self) -> None:
        """Let a coordinator that has taken over hear of every process that has ended: it reaches none of them."""
        for process in sorted(self._run.processes.dead):
            self.notice(process)

    def pause(self, process: str, seconds: float) -> None:
        """Stop the process for so long; a worker that is silent for too long counts as lost."""
        run = self._run
        process = run.processes.of(process)
        run.processes.stop(process, seconds)
        for name in run.workers.nodes:
            if run.processes.of(name) == process:
                run.agenda.enter(run.supervision.worker_lease_s, self._miss_worker, name)

    def _miss_worker(self, name: str) -> None:
        if self._run.processes.is_stopped(name):
            self._run.leads[-1].workers.on_silent(name)
