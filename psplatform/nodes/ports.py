"""What nodes need of the world that they live in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from psplatform.core.protocol.effects import (
    Archive,
    Compute,
    Evaluate,
    Expose,
    ForgetParts,
    ForgetSum,
    Gather,
    HandOn,
    Load,
    Publish,
    Redirect,
    SaveModel,
    Seal,
    Send,
    SendPart,
    Serve,
    Skip,
    Stage,
    SumUp,
    Transmit,
)
from psplatform.core.protocol.events import (
    Archived,
    ArchiveFailed,
    Captured,
    Evaluated,
    GatherDone,
    GatherFailed,
    Loaded,
    StageDone,
)

Work = Gather | Stage | Load | Transmit | Archive
"""What the state of a shard is asked to compute, one after the other."""


class Timers(Protocol):
    """Wakes a node up; what happens when a timer is due is given where the port is made.

    Attributes
    ----------
    due
        When each timer that is set is due, by its tag.
    """

    @property
    def due(self) -> dict[str, float]: ...  # noqa: D102

    def set(self, tag: str, at: float) -> None:
        """Wake the node under `tag` at that time of its own clock, and not at the one set before under it."""

    def cancel(self, tag: str) -> None:
        """Forget the time set under `tag`, if there is one."""

    def close(self) -> None:
        """Wake nobody any more."""


class Gradients(Protocol):
    """Computes a worker's gradients, and lets servers reach them."""

    def compute(self, effect: Compute) -> None:
        """Begin a gradient; `Computed`, `ComputeAborted` or `ComputeFailed` answers."""

    def cancel(self, sequence: int) -> None:
        """Interrupt that gradient, if it is still being computed: `ComputeAborted` answers then."""

    def expose(self, effect: Expose, counter: int) -> None:
        """Let servers reach the gradient that contributes to the version after `counter`; `Reachable` answers.

        Once for all shards; or, where blocks are merged one by one, as soon as it is so for some of them.
        """

    def close(self) -> None:
        """Compute nothing more, and give up what is on its way."""


class Sums(Protocol):
    """Sends a worker's gradients to be summed, and sums those of others."""

    def send_part(self, effect: SendPart) -> None:
        """Send a gradient to the aggregator of a bundle, which is told that it has arrived."""

    def sum_up(self, effect: SumUp) -> None:
        """Sum what has arrived of a bundle, and send the sum to every server; `SumReachable` answers."""

    def forget(self, effect: ForgetParts) -> None:
        """Forget what has arrived of a bundle."""

    def forget_sum(self, effect: ForgetSum) -> None:
        """Forget what was summed, and send it no more: no server will ask for it."""


class Relaying(Protocol):
    """Carries what a worker's process hands on of the parameters."""

    def send(self, effect: Send) -> None:
        """Send a pull to a server, which answers the relay."""

    def hand_on(self, effect: HandOn) -> None:
        """Send what was kept of a shard to a worker."""


class Evaluation(Protocol):
    """Measures and saves the version that was fetched last; it does one of these at a time."""

    def measure(self, version: int) -> None:
        """Measure it on held-out data; `Evaluated` or `EvaluationFailed` answers."""

    def keep(self, found: Evaluated) -> None:
        """Save it as the best so far; `found` answers, with whether it was saved, or why not."""

    def save(self, version: int) -> None:
        """Save it as the result of the run; `ModelSaved` or `SaveFailed` answers."""


class ShardState(Protocol):
    """The parameters and the optimiser of one copy of a shard, and what computes with them.

    `publish`, `skip`, `serve`, `refer`, `has_all`, `when_there` and `run` are for the node's thread.  The others are
    for where `run` computes, and never for two at a time.
    """

    def publish(self, effect: Publish) -> None:
        """Make the staged state visible."""

    def skip(self, effect: Skip) -> None:
        """Show what is visible under the effect's version, too."""

    def serve(self, effect: Serve) -> None:
        """Show what is visible under the effect's epoch, too."""

    def refer(self, effect: Transmit) -> None:
        """Send a transfer that names gradients which the replica has of the workers; `Captured` answers."""

    def has_all(self, effect: Gather) -> bool:
        """Whether all gradients are to be had now."""

    def when_there(self, effect: Gather, then: Callable[[], None]) -> None:
        """Call `then` as soon as all gradients are to be had, or cannot be expected any more."""

    def run(self, work: Sequence[Work], compute: Callable[[Sequence[Work]], list[Any]]) -> None:
        """Let `compute` do the work after whatever was to be run before; the events that it returns answer.

        They may come before this returns.
        """

    def gather(self, effect: Gather) -> GatherDone | GatherFailed:
        """Average gradients."""

    def stage(self, effect: Stage) -> StageDone:
        """Compute the next state beside the visible one."""

    def load(self, effect: Load) -> Loaded:
        """Make what came with a transfer the visible state."""

    def capture(self, effect: Transmit) -> Captured:
        """Capture what a transfer is to carry, and have it sent."""

    def archive(self, effect: Archive) -> Archived | ArchiveFailed | None:
        """Copy the newest state for a checkpoint; where it is written later on, the answer comes when it has been."""


class ShardPool(Protocol):
    """Makes servers and replicas for a coordinator, and lets go of them."""

    def recruit(self, shard: int) -> None:
        """Make another replica of a shard, away from the others; `CopyReady` or `NoCopy` answers."""

    def retire(self, name: str) -> None:
        """Let go of a server or a replica: what it sends from now on is void."""

    def forget(self, member: str, position_of: Callable[[int], int]) -> None:
        """Let each drop what a member exposed, once the position that `position_of` says of its shard is visible."""


class WorkerPool(Protocol):
    """Makes gradient workers and the evaluator for a coordinator, and lets go of them."""

    def dismiss(self, name: str, reason: str) -> None:
        """Let go of a gradient worker, and look for another in its place."""

    def order(self, order: Evaluate | SaveModel) -> None:
        """Give the evaluator an order, as soon as there is one; `Evaluated`, `ModelSaved` or their failures answer."""

    def redirect(self, effect: Redirect) -> None:
        """Let the evaluator ask the shard's new server."""


class StandbyPool(Protocol):
    """Makes standbys for a coordinator."""

    def appoint(self, number: int) -> None:
        """Make a standby of that number, away from the coordinator, which enlists it then."""

    def suspect(self, number: int) -> None:
        """Count the standby of that number as lost, as far as can be seen."""


class Arbiter(Protocol):
    """Answers what a coordinator cannot know by itself: Dask's scheduler, which is no part of the run."""

    def claim(self, number: int) -> None:
        """Claim the number of a standby of this coordinator; `Claimed` answers."""

    def consult(self, number: int) -> None:
        """Ask anything, until it answers; `Consulted` answers then."""


class CheckpointStore(Protocol):
    """Completes checkpoints, and removes those that were given up."""

    def seal(self, effect: Seal) -> None:
        """Write the manifest; `CheckpointSealed` or `CheckpointFailed` answers."""

    def discard(self, number: int) -> None:
        """Remove what was written of a checkpoint, unless it is sealed by then."""
