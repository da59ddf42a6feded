"""Partially synchronous parallelism (PSP): merge the first pushes of a block, start on the first blocks pulled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from psplatform.core.parameters import parameter
from psplatform.core.policy import (
    HOLD,
    POOL,
    Answer,
    Committed,
    Gradient,
    Policy,
    Scope,
    Traits,
    Verdict,
    View,
    Worker,
    at,
    not_yet,
    yes,
)
from psplatform.core.rates import proportional
from psplatform.core.workers.pulling import PullRule
from psplatform.errors import ConfigurationError

_PUSH: Final = 28 / 32
"""The share of the workers that the paper's blocks wait for."""

_FREE = yes("its pull waits at the servers, nothing else does")


@dataclass
class PartiallySynchronous(Policy):
    """Merge the first pushes of each block, and let a worker start on the first blocks that it has pulled.

    A block is a shard.  It merges as soon as `push` gradients of its version are in, or `push_timeout_s` later with
    whatever came meanwhile; what comes later is dropped.  A worker goes on as soon as the share `pull` of the blocks
    has come, or `pull_timeout_s` later; of the others it keeps the content that it has.  It counts its iterations
    itself and its gradients carry that count, not the versions of what they were computed on: one that has fallen
    behind is dropped until it has caught up, and catches up because none of its pulls waits.

    Guarantees: every merge takes gradients of one count, at least `push` of them while so many workers live and bring
    finite ones, else one of each of these, where a lost worker and the one in its place are two; a pull refreshes at
    least the share `pull` of the blocks, the first one all.
    With `push` = all workers and `pull` = 1 the result equals `bsp`, bit for bit.

    Differences from the paper
        A push that reaches a block before that block has the version is held until it does; the paper does not say
        what becomes of it.  A worker that joins begins at the count of the oldest block, with a whole pull.  The rate
        factor is the number of merged gradients over the number of workers, because a job's learning rate here is
        that of a round of all; the printed formula of the rate is garbled.
    """

    push: int | None = parameter(None, minimum=1, help="gradients a block waits for (c); none: 7 of 8 workers")
    pull: float = parameter(0.9, minimum=0.0, maximum=1.0, help="share of the blocks a worker waits for (b), above 0")
    push_timeout_s: float = parameter(0.0, minimum=0.0, maximum=1e6, help="seconds a ready block waits on (tau 1)")
    pull_timeout_s: float = parameter(0.0, minimum=0.0, maximum=1e6, help="seconds a ready worker waits on (tau 2)")
    subset: bool = parameter(False, help="ask only for as many blocks as are waited for, drawn at random")
    resync: str = parameter("counter", choices=("counter", "jump"), help="who fell behind counts on, or jumps ahead")

    source: ClassVar[str] = '"Partially synchronous parallelism" (PSP-SGD), and the implementation for MXNet'

    def __post_init__(self) -> None:
        """Check the parameters and forget every timer."""
        super().__post_init__()
        if self.pull == 0:
            raise ConfigurationError("pull must be above 0: a worker needs some of the model", field="pull")
        self._due: dict[int, tuple[int, float]] = {}

    def check(self, workers: int) -> None:
        """Refuse to wait for more gradients than there are workers."""
        if self.push is not None and self.push > workers:
            raise ConfigurationError(
                f"push must be at most the number of workers: push = {self.push}, workers = {workers}", field="push"
            )

    @property
    def traits(self) -> Traits:
        """Block by block; workers are never held back by the coordinator."""
        rule = PullRule(self.pull, self.pull_timeout_s, self.subset)
        return Traits(exact=False, scope=Scope.BLOCK, pull=rule, wakes=frozenset())

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Pool what has the block's count, hold what is ahead of it; what is behind was dropped unasked."""
        return POOL if gradient.counter == view.version else HOLD

    def pool_ready(self, view: View) -> Answer:
        """Merge when all are in, or enough are and the time is over."""
        able = view.live - view.refused  # what was not finite is not computed again
        wanted = self._wanted(view)
        if view.pooled >= max(able, 1):
            return yes("all live workers are in")
        if view.pooled < wanted:
            return not_yet(f"{view.pooled} of {wanted}")
        if not self.push_timeout_s:
            return yes(f"the first {wanted} are in")
        version, due = self._due.get(view.block, (-1, 0.0))
        if version != view.version:
            due = view.now + self.push_timeout_s
            self._due[view.block] = view.version, due
        return at(due, f"{self.push_timeout_s:g} s after the first {wanted} were in")

    def _wanted(self, view: View) -> int:
        return min(self.push or math.ceil(_PUSH * view.workers), view.live - view.refused)

    def decision(self, view: View) -> Mapping[str, float]:
        """Return how many gradients the block waited for, and the share of the blocks that a worker waits for."""
        return {"gradients per block": self._wanted(view), "pull share": self.pull}

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Nobody is held back."""
        return _FREE

    def wanted(self, worker: Worker, view: View) -> int:
        """Count on from the worker's last iteration; who joins begins at the oldest block's."""
        following = worker.counter + 1
        return max(following, view.version) if worker.counter < 0 or self.resync == "jump" else following

    def step_scale(self, commit: Committed, view: View) -> float:
        """Scale the step with the number of gradients merged into this block (linear scaling)."""
        return proportional(len(commit.gradients), view.workers)
