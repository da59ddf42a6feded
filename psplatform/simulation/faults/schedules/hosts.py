"""Hosts that are lost or cut off, drawn from a stream of their own: every seed keeps its other choices.

A trial with hosts has Dask workers on them, and its roles go where `psplatform.core.supervision.placement` says, at the
start and after each loss.  A process that has ended comes back after a while, empty, as a nanny would start it again.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Final

from psplatform.core.protocol.names import STANDBY
from psplatform.core.supervision.placement import Process
from psplatform.memory import MemoryRun
from psplatform.memory.processes.machines import Machines
from psplatform.simulation.faults.checks.histories import violated
from psplatform.simulation.faults.schedules.scenarios import UNTIL_S, Scenario, Scene, loosely
from psplatform.simulation.faults.schedules.schedule import Fault
from psplatform.simulation.faults.schedules.trial import LIVENESS, Copying, Noise, Trial

_SHARE: Final = 0.35
"""Share of the trials with copies and a standby that have hosts."""

_EVALUATOR: Final = 0.25
"""Share of those, but for the trials of the mode ``liveness``, in which something happens to the evaluator."""

_RESTART_S: Final = 3.0
"""Seconds after which a process that has ended is started again."""


def with_hosts(trial: Trial) -> Trial:
    """Return the trial, or one that has hosts and may lose one of them, as its seed says."""
    rng = random.Random(f"hosts {trial.seed}")
    if trial.copying is None or not trial.standby or rng.random() >= _SHARE:
        return trial
    trial = on_hosts(rng, trial)
    if trial.mode == LIVENESS:
        return replace(trial, faults=tuple(_as_of_host(rng, one) for one in trial.faults))
    if rng.random() < 0.6:
        trial = replace(trial, faults=(*trial.faults, _of_host(rng, trial, rng.uniform(0, UNTIL_S))))
    again = random.Random(f"evaluator {trial.seed}")
    if again.random() < _EVALUATOR:
        trial = replace(trial, faults=(*trial.faults, _of_evaluator(again, again.uniform(0, 3 * UNTIL_S))))
    return trial


def _of_evaluator(rng: random.Random, at: float) -> Fault:
    return Fault(rng.choice(["kill", "pause", "cut", "retire"]), "evaluator", at=at, seconds=rng.uniform(0.5, 9))


def on_hosts(rng: random.Random, trial: Trial, hosts: int = 0) -> Trial:
    """Return the trial on so many hosts, with processes for all that it has and a few more."""
    copies = 1 + (trial.copying.replicas if trial.copying is not None else 0)
    spare = 3 if trial.mode == LIVENESS else rng.randint(0, 3)
    processes = trial.workers + max(copies, trial.shards) + spare
    # From a stream of its own: every seed keeps its other choices.
    most = random.Random(f"most workers {trial.seed}").choice([None, trial.workers, trial.workers + 1])
    trial = replace(trial, processes=processes, most_workers=most)
    return replace(trial, hosts=hosts or (3 if trial.mode == LIVENESS else rng.choice([2, 3, 3])))


def _of_host(rng: random.Random, trial: Trial, at: float) -> Fault:
    shard = rng.randrange(trial.shards)
    who = rng.choice(["coordinator", "coordinator", "standby", f"server {shard}", f"replica {shard}", "worker 0"])
    if rng.random() < 0.5:
        return Fault("host", who, at=at)
    return Fault("cut", who, at=at, seconds=rng.uniform(0.5, 9))


def _as_of_host(rng: random.Random, fault: Fault) -> Fault:
    """Let the host be lost, or cut off, instead of one process, in some of the trials that leave enough alive."""
    if fault.kind not in ("kill", "retire") or rng.random() >= 0.7:
        return fault
    kind, seconds = ("host", 0.0) if rng.random() < 0.5 else ("cut", rng.uniform(0.5, 9))
    return replace(fault, kind=kind, seconds=seconds)


# --- scenarios ---


def _host_is_lost(rng: random.Random, trial: Trial) -> Scene:
    trial = on_hosts(rng, loosely(rng, trial, rng.choice([1, 1, 2])))
    start = rng.uniform(1, UNTIL_S)
    again = [(), (), (_of_host(rng, trial, start + rng.uniform(2, 8)),)]
    return Scene(trial, (Fault("host", rng.choice(["coordinator", "server 0"]), at=start), *rng.choice(again)))


def _host_is_cut_off(rng: random.Random, trial: Trial) -> Scene:
    trial = on_hosts(rng, replace(loosely(rng, trial, rng.choice([1, 1, 2])), leases=True))
    start = rng.uniform(1, UNTIL_S)
    before = [(), (Fault("host", "coordinator", at=max(0.0, start - rng.uniform(4, 8))),)]
    cut = Fault("cut", rng.choice(["coordinator", "server 0"]), at=start, seconds=rng.uniform(3, 12))
    return Scene(trial, (*rng.choice(before), cut))


def _coordinator_is_cut_off_alone(rng: random.Random, trial: Trial) -> Scene:
    # Nothing stands by for it, and it shares the process of the first server: it could go on by itself.
    copying = Copying(1, float(rng.choice([1, 2, 4, 8])), "updates")
    trial = replace(trial, copying=copying, standby=False, shared=True, leases=True, spares=2)
    return Scene(trial, (Fault("cut", "coordinator", at=rng.uniform(1, UNTIL_S), seconds=rng.uniform(5, 12)),))


def _coordinators_are_lost_together(rng: random.Random, trial: Trial) -> Scene:
    # With the one that would take over, or one after the other so fast that nothing is replaced; or the one that takes
    # over has heard less than the other.
    trial = replace(loosely(rng, trial, 2), shared=False, spares=rng.choice([0, 4]))
    start = rng.uniform(1, UNTIL_S)
    if rng.random() < 0.5:
        late = Fault("delay", "standby", at=start - 0.5, seconds=4.0, factor=rng.uniform(0.5, 3))
        lost = Fault("kill", rng.choice(["server 0", "server 0", "replica 0"]), at=start)
        return Scene(trial, (late, lost, Fault("kill", "coordinator", at=start + rng.uniform(0.1, 1.5))))
    roles = rng.choice([("coordinator", "standby"), ("standby", "coordinator"), ("coordinator", "coordinator")])
    pause = rng.choice([0.0, 0.0, rng.uniform(0, 1)])
    kinds = rng.choice(["kill", "kill", "pause"]), "kill"
    pairs = zip(roles, kinds, (start, start + pause), strict=True)
    return Scene(trial, tuple(Fault(kind, who, at=at, seconds=rng.uniform(2, 9)) for who, kind, at in pairs))


def _servers_are_lost_in_a_row(rng: random.Random, trial: Trial) -> Scene:
    # Two replicas are two losses that are survived, however fast one follows the other: the promoted server may not
    # have brought the other replica level yet.
    bound = float(rng.choice([0, 1, 2, 4, 8]))
    trial = replace(trial, mode=LIVENESS, copying=Copying(2, bound, "updates"), standby=True, shared=False, spares=4)
    trial = replace(trial, noise=rng.choice([Noise(), Noise(0.02, 0.3)]), leases=False)
    start = rng.uniform(1, UNTIL_S)
    late = Fault("delay", rng.choice(["replica 0", "server 0"]), at=start - 0.5, seconds=3.0, factor=rng.uniform(0, 1))
    then = start + rng.choice([0.0, rng.uniform(0, 0.2), rng.uniform(0, 2)])
    second = rng.choice(["server 0", "server 0", "server 0", "replica 0"])
    kills = Fault("kill", "server 0", at=start), Fault("kill", second, at=then)
    return Scene(trial, (*rng.choice([(), (late,)]), *kills))


def _batches_are_out(rng: random.Random, trial: Trial) -> Scene:
    # The standby has heard of neither a release nor the gradient, which a server has applied; its worker may be lost.
    trial = replace(loosely(rng, trial, rng.choice([1, 2])), epochs=True, shared=False, spares=4, workers=4)
    start = rng.uniform(4, UNTIL_S)
    late = Fault("delay", "standby", at=start - 3, seconds=6.0, factor=rng.uniform(1, 4))
    more = [(), (Fault("kill", "server 0", at=start),), (Fault("kill", "worker 1", at=start + rng.uniform(-0.5, 0)),)]
    lost = Fault("kill", "worker 0", at=start + rng.choice([0.0, rng.uniform(-0.5, 0.2)]))
    return Scene(trial, (late, lost, *rng.choice(more), Fault("kill", "coordinator", at=start)))


def _gradients_are_lost_unseen(rng: random.Random, trial: Trial) -> Scene:
    # A server is lost that only the workers have heard for a while, and they have gone on: what takes its place finds
    # their gradients gone.  Its coordinator lets it pass over them, cut off from the standbys, and is lost.
    copying = Copying(rng.choice([1, 2]), 8.0, "updates")
    trial = replace(trial, copying=copying, standby=True, shared=False, spares=4, leases=True, clip=None, cut_every=0)
    trial = replace(trial, policy="asp", parameters={}, workers=4, shards=rng.choice([2, 3]), noise=Noise())
    lost = rng.uniform(3, UNTIL_S)
    others = ("coordinator", "replica 1")
    unheard = Fault("partition", "server 1", at=lost - rng.uniform(0.8, 1.2), seconds=9.0, others=others, way="out")
    then = lost + rng.uniform(0.06, 0.12)
    alone = Fault("partition", "coordinator", at=then, seconds=9.0, others=("standby",))
    kills = Fault("kill", "server 1", at=lost), Fault("kill", "coordinator", at=then + rng.uniform(0.2, 0.5))
    return Scene(trial, (unheard, alone, *kills))


def _evaluator_is_lost(rng: random.Random, trial: Trial) -> Scene:
    # Nothing is evaluated before the end, which comes soon: then it is stopped, cut off or lost, and so is the next.
    trial = on_hosts(rng, replace(loosely(rng, trial, rng.choice([1, 1, 2])), updates=rng.randint(2, 5)))
    start, faults = rng.uniform(0, UNTIL_S), []
    for _ in range(rng.randint(1, 3)):
        faults.append(_of_evaluator(rng, start))
        start += rng.choice([rng.uniform(0, 1), rng.uniform(1, 4)])
    if rng.random() < 0.4:
        faults.append(Fault("kill", "coordinator", at=start + rng.uniform(-2, 2)))
    return Scene(trial, tuple(faults))


def _processes_stay_away(rng: random.Random, trial: Trial) -> Scene:
    # There are just as many processes as roles need, and those that are lost do not come back: roles must share.
    trial = replace(loosely(rng, trial), leases=True, workers=rng.choice([2, 3]), shards=1, updates=rng.randint(50, 70))
    trial = replace(trial, hosts=3, processes=trial.workers + rng.randint(0, 2), nannies=False)
    start = rng.uniform(0, UNTIL_S)
    kinds = rng.choice(["kill", "kill", "retire"]), rng.choice(["kill", "retire"])
    roles = rng.choice(["server 0", "replica 0", "worker 0"]), rng.choice(["worker 1", "coordinator", "evaluator"])
    ats = start, start + rng.choice([0.0, rng.uniform(0, 1), rng.uniform(3, 6)])
    faults = [Fault(kind, who, at=at, seconds=1.0) for kind, who, at in zip(kinds, roles, ats, strict=True)]
    return Scene(trial, tuple(faults[: rng.choice([1, 2])]))


HOSTED: Final[dict[str, Scenario]] = {
    "a host is lost": _host_is_lost,
    "batches are out as coordinators are lost": _batches_are_out,
    "a host is cut off": _host_is_cut_off,
    "gradients are lost unseen": _gradients_are_lost_unseen,
    "an evaluator is lost": _evaluator_is_lost,
    "a coordinator is cut off alone": _coordinator_is_cut_off_alone,
    "coordinators are lost together": _coordinators_are_lost_together,
    "processes stay away": _processes_stay_away,
    "servers are lost in a row": _servers_are_lost_in_a_row,
}


# --- while a trial runs ---


def machines_of(trial: Trial) -> Machines | None:
    """Return the Dask workers of a trial that has hosts."""
    if not trial.hosts:
        return None
    refuses = Refusals(trial.seed, trial.refusing)
    return Machines(trial.hosts, trial.processes, on_placed=_require_apart, refuses=refuses)


class Refusals:
    """Which gradient workers cannot be started: the first in some processes, as memory is short, and all in others.

    Parameters
    ----------
    share
        Share of the processes in which it is so.
    """

    def __init__(self, seed: int, share: float) -> None:
        self._seed, self._share = seed, share
        self._left: dict[str, float] = {}

    def __call__(self, name: str, address: str) -> bool:
        """Whether that one cannot be started there."""
        if address not in self._left:
            chance = random.Random(f"refusal {self._seed} {address}")
            refuses = chance.random() < self._share
            self._left[address] = chance.choice([1, 2, math.inf]) if refuses else 0
        self._left[address] -= 1
        return self._left[address] >= 0


def _require_apart(name: str, process: Process, others: list[Process], there: list[Process]) -> None:
    """Hold a new standby or replica against the promise: not on the only host of the others while there is another."""
    hosts = {process.host, *(one.host for one in others)}
    if others and len(hosts) == 1 and any(one.host != process.host for one in there):
        kind = STANDBY.kind if name.startswith(STANDBY.kind) else "replica"
        raise violated(
            "S12", f"the {kind} {name} is on {process.host}, as {others[0].address} is, and there are others"
        )


class Nannies:
    """Starts processes again that have ended in `run`, if `restart` says so."""

    def __init__(self, run: MemoryRun, machines: Machines, restart: bool) -> None:
        self._run = run
        self._machines = machines
        self._restart = restart
        self._buried: set[str] = set()

    def look(self) -> None:
        """See which processes have ended."""
        for address in sorted(self._run.processes.dead - self._buried):
            self._buried.add(address)
            host = self._machines.end(address)
            if host and self._restart:
                self._run.agenda.enter(_RESTART_S, self._machines.start, host)
