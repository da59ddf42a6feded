"""Processes that die one after the other in the user's code: where that ends the run.

One worker that dies is a lost worker: the others go on, and another process takes its place.  Code that ends every
process that runs it would be tried for ever.  So the run ends when `MOST_DEATHS` processes have died with the same
batch, or in the same slot without one gradient between them, or one after the other before they had opened the task;
and when so many evaluators have died without an evaluation between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from psplatform.core.coordination.ending import Ending
from psplatform.core.coordination.state import State
from psplatform.core.events import EvaluatorDied, MemberDied
from psplatform.core.roster import Member
from psplatform.errors import ProcessDied

MOST_DEATHS: Final = 3
"""A machine that loses power, or an administrator, seldom ends three processes that are doing the same work."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """What a worker was doing when it was lost.

    Attributes
    ----------
    batch
        Epoch and number of the batch that it computed; ``None`` where batches are not dealt.
    first
        Whether that was its first gradient.
    """

    slot: int
    batch: tuple[int, int] | None
    first: bool


class Deaths:
    """Counts the processes that died doing the same work."""

    def __init__(self, state: State, ending: Ending) -> None:
        self._state = state
        self._ending = ending
        self._began: dict[str, int] = {}
        self._losses: dict[str, _Loss | None] = {}
        self._with_batch: Counter[tuple[int, int]] = Counter()
        self._in_slot: Counter[int] = Counter()
        self._unopened = 0

    def note_joined(self, member: Member) -> None:
        """Note that a process has opened the task."""
        self._began[member.name] = member.sequence
        self._unopened = 0

    def note_lost(self, member: Member) -> None:
        """Note what a member was doing, before the roster drops it.

        If its process died, `on_member_died` follows once that is known.
        """
        began = self._began.pop(member.name, member.sequence)
        if not member.busy:
            self._losses[member.name] = None
            return
        ticket = self._state.deck.ticket(member.slot, member.sequence) if self._state.deck is not None else None
        batch = (ticket.epoch, ticket.number) if ticket is not None else None
        self._losses[member.name] = _Loss(member.slot, batch, first=member.sequence <= began + 1)

    def on_member_died(self, event: MemberDied) -> None:
        """Count a worker's process among those that died doing the same work, and end the run if there are too many."""
        if event.member not in self._losses:
            self._unopened += 1
            self._end_after(self._unopened, "while they opened the task", event.error)
            return
        loss = self._losses.pop(event.member)
        if loss is None:  # the user's code was not running
            return
        self._in_slot[loss.slot] = self._in_slot[loss.slot] + 1 if loss.first else 1
        if loss.batch is not None:
            self._with_batch[loss.batch] += 1
            self._end_after(self._with_batch[loss.batch], "while they computed the same batch", event.error)
        self._end_after(self._in_slot[loss.slot], f"at a gradient of worker {loss.slot}, none came back", event.error)

    def on_evaluator_died(self, event: EvaluatorDied) -> None:
        """Count an evaluator that died, and end the run without another try if there are too many."""
        self._ending.evaluators_died += 1
        if self._ending.evaluators_died >= MOST_DEATHS:
            error = _after(self._ending.evaluators_died, "while they evaluated the model", event.error)
            self._ending.on_evaluation_failed(error)

    def _end_after(self, count: int, when: str, last: ProcessDied) -> None:
        if count >= MOST_DEATHS and not self._ending.begun:
            self._ending.fail(_after(count, when, last))


def _after(count: int, when: str, last: ProcessDied) -> ProcessDied:
    text = f"{count} processes have died one after the other {when}: {last.args[0]}"
    return ProcessDied(text, kind=last.kind, peer=last.peer, pid=last.pid, code=last.code)
