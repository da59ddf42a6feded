"""Dealing the batches of an epoch, so that each sample is applied exactly once in it.

Under epoch sampling the coordinator assigns a batch with the release of a worker.  An assignment whose gradient was
applied is settled; one whose gradient was dropped, aborted or lost with its worker goes back and is dealt again before
any new one.  So within an epoch every sample enters exactly one applied gradient, whatever fails.  One
whose gradient was not finite is dealt again only after the next commit, because the same model would make the same of
it, and is given up once that has happened so often as `Plan.tries` says: its samples are missing from that epoch.  The
next epoch's batches are dealt as soon as there is none left, while the last ones of this epoch are still out: no worker
waits at the end of an epoch, and an assignment that comes back late keeps its epoch.  A run that ends drops what is
out: a batch that a straggler held then is missing from its epoch, and the log says so.

A coordinator that takes over may not know what the lost one assigned last.  Therefore a gradient names its assignment
wherever it is mentioned: the first gradient to be heard of has it, one that was applied has it whatever was heard, and
any other one was computed in vain.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, Final

from psplatform.core.protocol.messages import BatchAssignment

MOST_TRIES: Final = 3
"""Gradients of one batch that may fail to be finite before it is given up: what one version of the model makes nothing
finite of, a later one may; of a sample that is itself not finite, none ever will."""


@dataclass
class BatchScheduler:
    """The batch assignments of the current and the following epochs.

    Parameters
    ----------
    batches
        Batches per epoch, at least 1.
    """

    batches: int
    _epoch: int = 0
    _number: int = 0
    _returned: list[tuple[int, int]] = field(default_factory=list)
    _out: dict[tuple[int, int], BatchAssignment] = field(default_factory=dict)
    _ahead: set[tuple[int, int]] = field(default_factory=set)
    _duplicates: set[tuple[int, int]] = field(default_factory=set)
    _aside: list[tuple[int, int]] = field(default_factory=list)
    _refusals: dict[tuple[int, int], int] = field(default_factory=dict)

    def copy(self) -> BatchScheduler:
        """Return one that stands where this one does now."""
        returned, out, ahead = list(self._returned), dict(self._out), set(self._ahead)
        duplicates, aside, refusals = set(self._duplicates), list(self._aside), dict(self._refusals)
        place = self.batches, self._epoch, self._number
        return BatchScheduler(*place, returned, out, ahead, duplicates, aside, refusals)

    def to_plain(self) -> dict[str, Any]:
        """Return where dealing stands, as plain values; what is out comes back: nobody is left to compute it."""
        returned = sorted([*self._returned, *self._aside, *((one.epoch, one.number) for one in self._out.values())])
        dealing = {"epoch": self._epoch, "number": self._number, "returned": returned, "batches": self.batches}
        refusals = [[*assignment, count] for assignment, count in sorted(self._refusals.items())]
        return {**dealing, "refusals": refusals, "ahead": sorted(self._ahead)}

    def restore(self, plain: dict[str, Any]) -> None:
        """Deal on from what `to_plain` returned; with other batches in an epoch, from the beginning of that epoch."""
        self._epoch = plain["epoch"]
        if plain["batches"] == self.batches:
            self._number = plain["number"]
            self._returned = [(epoch, number) for epoch, number in plain["returned"]]
            self._refusals = {(epoch, number): count for epoch, number, count in plain.get("refusals", ())}
            self._ahead = {(epoch, number) for epoch, number in plain.get("ahead", ())}

    @property
    def out(self) -> set[tuple[int, int]]:
        """The gradients that have a batch assignment which is neither settled nor back."""
        return set(self._out)

    def deal(self, slot: int, sequence: int) -> BatchAssignment:
        """Deal a batch assignment for gradient (`slot`, `sequence`): the earliest that came back, else a new one."""
        assignment = self._next()
        self._out[slot, sequence] = assignment
        self._duplicates.discard((slot, sequence))
        return assignment

    def _next(self) -> BatchAssignment:
        if self._returned:
            return BatchAssignment(*heapq.heappop(self._returned))
        while True:
            assignment = BatchAssignment(self._epoch, self._number)
            self._number += 1
            if self._number == self.batches:
                self._epoch, self._number = self._epoch + 1, 0
            if (assignment.epoch, assignment.number) not in self._ahead:
                return assignment
            self._ahead.discard((assignment.epoch, assignment.number))

    def assignment(self, slot: int, sequence: int) -> BatchAssignment | None:
        """Return the batch assignment that gradient (`slot`, `sequence`) has."""
        return self._out.get((slot, sequence))

    def claim(self, slot: int, sequence: int, assignment: BatchAssignment) -> None:
        """Learn on which batch assignment a gradient is computed, by this coordinator or one before.

        One that another gradient has, or was applied with, stays where it is: then this one is a duplicate.
        """
        key = slot, sequence
        if self._out.get(key) == assignment:
            return
        self.take_back(slot, sequence)
        if self._withdraw(assignment):
            self._out[key] = assignment
        else:
            self._duplicates.add(key)

    def is_duplicate(self, slot: int, sequence: int) -> bool:
        """Whether the gradient is computed on a batch assignment that another one has or was applied with."""
        return (slot, sequence) in self._duplicates

    def settle(self, slot: int, sequence: int, assignment: BatchAssignment | None) -> None:
        """Count the gradient as applied, and its batch assignment with it, this coordinator's or another's."""
        key = slot, sequence
        if assignment is not None and self._out.get(key) != assignment:
            self.take_back(slot, sequence)
            if not self._withdraw(assignment):
                self._rob(assignment)
        self._out.pop(key, None)
        if assignment is not None and self._refusals:
            self._refusals.pop((assignment.epoch, assignment.number), None)

    def _withdraw(self, assignment: BatchAssignment) -> bool:
        """Take a batch assignment out of what is still to be dealt; return whether it was there."""
        place = assignment.epoch, assignment.number
        for pile in (self._returned, self._aside):
            if place in pile:
                pile.remove(place)
                heapq.heapify(self._returned)
                return True
        if place < (self._epoch, self._number) or place in self._ahead:
            return False
        self._ahead.add(place)
        return True

    def _rob(self, assignment: BatchAssignment) -> None:
        for key in [key for key, one in self._out.items() if one == assignment]:
            del self._out[key]
            self._duplicates.add(key)

    def refuse(self, slot: int, sequence: int, most: int) -> tuple[BatchAssignment, int] | None:
        """Count the gradient as not finite; return its batch assignment and how often that has happened to it.

        After `most` times the batch is given up, before it is set aside until `retry`.  A gradient without a batch
        assignment has ``None``.
        """
        assignment = self._out.pop((slot, sequence), None)
        if assignment is None:
            return None
        place = assignment.epoch, assignment.number
        count = self._refusals.pop(place, 0) + 1
        if count < most:
            self._refusals[place] = count
            self._aside.append(place)
        return assignment, count

    def retry(self) -> None:
        """Deal what was set aside again: the model has changed."""
        aside, self._aside = self._aside, []
        for place in aside:
            heapq.heappush(self._returned, place)

    def take_back(self, slot: int, sequence: int) -> None:
        """Deal the batch assignment of a gradient again that will not be applied."""
        self._duplicates.discard((slot, sequence))
        assignment = self._out.pop((slot, sequence), None)
        if assignment is not None:
            heapq.heappush(self._returned, (assignment.epoch, assignment.number))
