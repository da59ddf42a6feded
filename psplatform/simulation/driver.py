"""The course of a simulation, from the first worker's arrival to what came of it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch

from psplatform.core.plan import Plan
from psplatform.core.policy import Policy
from psplatform.core.protocol.effects import Finish
from psplatform.core.shards.links import MakeAccount
from psplatform.core.transfers import Fabric
from psplatform.errors import ClusterError
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.training import TensorArithmetic
from psplatform.simulation.event_trace import EventTrace
from psplatform.simulation.world import SimulatedWorld
from psplatform.telemetry.read_model import RunView

_EVENTS: Final = 2_000_000_000
"""More than any machine handles in a day: a run that goes on for ever must end some day."""

_PATIENCE: Final = 1_000_000
_PATIENCE_FOR_EACH: Final = 100
"""Events without a commit, beside the former for each worker and shard, after which none is to be expected."""

_SHOWN: Final = 5
"""Waiting workers that an error names."""


@dataclass(frozen=True)
class Simulated:
    """What came of a simulation.

    Attributes
    ----------
    view
        The run's picture: losses, evaluations, delays, drops, waiting.
    virtual_seconds
        From the first worker's arrival to the end.
    reached_target
        Whether the run ended because its target was reached; ``None`` where it had none.
    events
        Events handled.
    trace_sha256
        Digest of the event log.
    records
        The event log, where it was asked for.
    model
        The tensors that were saved, by name; empty in a simulation of times only.
    """

    view: RunView
    virtual_seconds: float
    reached_target: bool | None
    events: int
    trace_sha256: str
    records: list[dict[str, Any]]
    model: dict[str, torch.Tensor]

    def summary(self) -> dict[str, Any]:
        """Return the object that ``psplatform simulate --json`` ends with: plain values."""
        return {
            **self.view.to_summary(),
            "virtual_seconds": self.virtual_seconds,
            "reached_target": self.reached_target,
            "events": self.events,
            "trace_sha256": self.trace_sha256,
        }


def run_world(
    plan: Plan,
    policy: Policy,
    arithmetic: Arithmetic,
    world: SimulatedWorld,
    event_trace: EventTrace,
    *,
    seed: int = 0,
    make_account: MakeAccount | None = None,
    fabric: Fabric | None = None,
) -> Simulated:
    """Run a plan to its end in a world.

    `make_account` makes the accounts of replicas, where the plan has any; `fabric` plans the transfers of gradients,
    and without one they are sent as soon as computed.

    Raises
    ------
    PsplatformError
        What the run failed with: an error in the user's code or the policy, or divergence.
    ClusterError
        If it cannot end any more: nobody goes on, nothing is committed, or time stands still.
    """
    run = MemoryRun(
        plan,
        policy,
        arithmetic=arithmetic,
        world=world,
        sink=event_trace,
        seed=seed,
        make_account=make_account,
        fabric=fabric,
    )
    for number in range(plan.workers):
        run.join(f"w{number}")
    with _few_collections():
        finish = _run_to_its_end(run, event_trace.view)
    if finish.failure is not None:
        raise finish.failure
    view = event_trace.view
    reached = finish.outcome == "reached target" if plan.stop.needs_evaluation else None
    seconds = view.outcome.seconds if view.outcome else run.agenda.now
    model = arithmetic.saved if isinstance(arithmetic, TensorArithmetic) else {}
    return Simulated(view, seconds, reached, run.agenda.done, event_trace.sha256, event_trace.records, model)


def _run_to_its_end(run: MemoryRun, view: RunView) -> Finish:
    plan, agenda = run.plan, run.agenda
    patience = _PATIENCE + _PATIENCE_FOR_EACH * plan.workers * plan.shards
    while agenda.done < _EVENTS:
        done, now, commits = agenda.done, agenda.now, view.commits
        try:
            return run.run(events=patience)
        except RuntimeError as endless:
            idle = agenda.done < done + patience
            reason = _reason(plan, idle=idle, commits=view.commits - commits, seconds=agenda.now - now)
            if reason is not None:
                raise ClusterError(f"{_who_waits(run, view)}; {reason}") from endless
    raise ClusterError(f"the run is not over after {_EVENTS} events; stop it by updates, epochs or seconds as well")


def _reason(plan: Plan, *, idle: bool, commits: int, seconds: float) -> str | None:
    """Return why a run that went on for so long will not end, or ``None`` where it may."""
    if idle:
        return "the policy lets nobody go on, see its may_start and pool_ready"
    if not commits:
        return "the policy commits nothing any more, see its admit and pool_ready"
    if not seconds and plan.stop.updates is None and plan.stop.epochs is None:
        return "gradients take no time, so that it never passes; stop the run by updates or epochs"
    return None


def _who_waits(run: MemoryRun, view: RunView) -> str:
    waiting = [f"{name} ({words})" for name, words in run.workers.waiting.items()]
    more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
    # The time of the newest record: the clock may since have jumped to the end of a timer that was cancelled.
    return f"the run does not end; at {view.seconds:g} s these wait: {', '.join(waiting[:_SHOWN]) or 'none'}{more}"


@contextmanager
def _few_collections() -> Iterator[None]:
    # What a run makes is freed by counting references; looking for cycles among ten thousand workers costs a third.
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
