"""Gradients that are not finite: when they mean that a run has diverged, or that its data is bad, and it stops."""

from __future__ import annotations

from collections.abc import Sequence

from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.order.commit_logs import CommitLog
from psplatform.core.coordination.state import State
from psplatform.core.policy import Gradient
from psplatform.errors import BadBatchError, DivergedError


class Divergence:
    """Counts what was not finite since the last commit; when nobody is left who might do better, it ends the run.

    Attributes
    ----------
    non_finite
        By slot, the latest gradient since the last commit where it was not finite; the last to arrive comes last.
    refusals
        Gradients refused since the last commit because they were not finite.
    """

    def __init__(self, state: State, ending: Ending) -> None:
        self._state = state
        self._ending = ending
        self.non_finite: dict[int, Gradient] = {}
        self.refusals = 0
        # Those whose samples are finite.
        self._unexplained = 0

    def note_refused(self, commit_log: CommitLog, gradient: Gradient) -> None:
        """Count a gradient that was dropped because it was not finite."""
        self.non_finite[gradient.slot] = gradient
        self.refusals += 1
        self._unexplained += gradient.flaw is None or not gradient.flaw.of_data
        if self._state.roster.by_name.get(gradient.member) is not None:
            commit_log.unfit[gradient.member] = gradient
            self._state.stirred.add(commit_log.block)  # the round has one less to wait for
        self._stop_if_diverged([commit_log])

    def note_better(self, slot: int) -> None:
        """Forget what was not finite of a slot that has brought something else."""
        self.non_finite.pop(slot, None)

    def note_commit(self) -> None:
        """Begin to count anew."""
        self.non_finite.clear()
        self.refusals = self._unexplained = 0

    def note_removed(self, slot: int) -> None:
        """Forget what the process that left `slot` computed last; those who remain may all have diverged."""
        self.non_finite.pop(slot, None)
        self._stop_if_diverged(self._state.commit_logs)

    def _stop_if_diverged(self, commit_logs: Sequence[CommitLog]) -> None:
        if self._state.stopping:
            return
        last = self._block_diverged(commit_logs) if self._state.per_block else self._model_diverged()
        if last is None:
            return
        if self._state.per_block or self._is_beyond_luck():
            self._ending.fail(self._diverged(last))
        elif not self._state.busy:
            self._try_again()

    def _is_beyond_luck(self) -> bool:
        """Whether too many batches in a row were not finite for it to be theirs."""
        state = self._state
        least = max(state.live, state.plan.tries)
        return self._unexplained >= least or self.refusals >= max(least, state.plan.batches_per_epoch)

    def _try_again(self) -> None:
        # Nobody computes, and nothing is pooled that would make a newer version: other batches are tried on this one.
        for member in self._state.roster.members():
            member.version = min(member.version, self._state.version - 1)
            self._state.to_examine.append(member)

    def _diverged(self, last: Gradient) -> DivergedError:
        if self._unexplained or last.flaw is None:
            return _diverged(last)
        return bad_batch(last, f", nor is any of the last {self.refusals} batches; mend or remove such samples")

    def _block_diverged(self, commit_logs: Sequence[CommitLog]) -> Gradient | None:
        # Nobody computes a version of a block twice: one that everybody alive has spoiled never comes.
        for commit_log in commit_logs:
            if commit_log.unfit and not commit_log.pool and len(commit_log.unfit) >= self._state.live:
                return next(reversed(commit_log.unfit.values()))
        return None

    def _model_diverged(self) -> Gradient | None:
        state, non_finite = self._state, self.non_finite
        if not non_finite or state.pooled or self.refusals < state.live:
            return None
        # Who waits for others is not waited for: those may never bring the commit that would let it go on.
        awaited = {member.slot for member in state.to_examine}
        for member in state.roster.members():
            if member.slot not in non_finite and (member.busy or member.slot in awaited):
                return None
        return next(reversed(non_finite.values()))


def bad_batch(last: Gradient, ending: str) -> BadBatchError:
    """Return the error of a run that ends at a batch whose gradient `last` is."""
    flaw = last.flaw
    what = f"{flaw}" if flaw is not None else f"a batch has loss {last.loss:g}"
    return BadBatchError(
        what + ending,
        slot=last.slot,
        version=last.label.version,
        loss=last.loss,
        samples=flaw.samples if flaw is not None else (),
        tensor=flaw.tensor if flaw is not None else "",
    )


def _diverged(last: Gradient) -> DivergedError:
    return DivergedError(
        f"a whole round of gradients was not finite: worker {last.slot} at version {last.label.version} had "
        f"loss {last.loss:g}; lower the learning rate or clip the gradient norm",
        slot=last.slot,
        version=last.label.version,
        loss=last.loss,
    )
