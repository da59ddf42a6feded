"""Slots, the members in them, and their clocks.

A slot is a worker's logical place and outlives the process in it: its sequence numbers continue when another process
takes it, so that no randomness repeats.  Every count that a policy may ask for is kept, never recomputed.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(slots=True)
class Member:
    """The process in a slot.

    Attributes
    ----------
    incarnation
        How many processes the slot has had, this one included.
    sequence
        Number of the gradient the slot was last released for.
    version
        Newest version it was released on or has worked on, -1 before the first release of this incarnation, and where
        it has worked on what nobody knows any more.
    counter
        Version that its last release asked for, -1 before the first of this incarnation.
    announced
        Shards that can reach the gradient at hand, as far as it is known.
    clock
        Gradients applied, never below the minimum among the live when the member joined.
    busy
        Whether it fetches or computes; otherwise it waits for a release.
    interrupted
        The gradients it was told to abort and has not yet spoken of: more than one where the model moved on again
        before the first computation had stopped.
    """

    name: str
    process: str
    slot: int
    incarnation: int
    sequence: int
    clock: int
    version: int = -1
    counter: int = -1
    busy: bool = False
    announced: set[int] = field(default_factory=set)
    interrupted: set[int] = field(default_factory=set)


class Slots(NamedTuple):
    """What slots outlive, as it is at one moment.

    Attributes
    ----------
    sequences, incarnations
        By slot, the last sequence number that was given, and how many processes there were.
    minimum_clock
        The smallest of the clocks.
    """

    sequences: dict[int, int]
    incarnations: dict[int, int]
    minimum_clock: int

    def to_plain(self) -> dict[str, Any]:
        """Return plain values, from which `Roster.restore` goes on."""
        sequences, incarnations = sorted(self.sequences.items()), sorted(self.incarnations.items())
        return {"sequences": sequences, "incarnations": incarnations, "minimum_clock": self.minimum_clock}


@dataclass
class Roster:
    """Who is in which slot.

    Parameters
    ----------
    limit
        Most slots there may be, or ``None``.

    Attributes
    ----------
    by_name
        The live members.
    busy
        How many of them fetch or compute.
    minimum_clock
        The smallest of their clocks.
    """

    limit: int | None
    busy: int = 0
    _members: dict[int, Member] = field(default_factory=dict)
    by_name: dict[str, Member] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _free: list[int] = field(default_factory=list)
    _sequences: dict[int, int] = field(default_factory=dict)
    _incarnations: Counter[int] = field(default_factory=Counter)
    _clocks: Counter[int] = field(default_factory=Counter)
    minimum_clock: int = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def slots(self) -> Slots:
        """What slots outlive; a copy, in O(n)."""
        return Slots(dict(self._sequences), dict(self._incarnations), self.minimum_clock)

    def restore(self, plain: dict[str, Any]) -> None:
        """Let slots go on from what `Slots.to_plain` returned; nobody is in them."""
        self._sequences = dict(plain["sequences"])
        self._incarnations = Counter(dict(plain["incarnations"]))
        self.minimum_clock = plain["minimum_clock"]

    def members(self) -> list[Member]:
        """Return the live members in the order of their slots."""
        return [self._members[slot] for slot in sorted(self._members)]

    def waiting(self) -> list[Member]:
        """Return the live members that wait for a release, in the order of their slots."""
        return [self._members[slot] for slot in sorted(self._waiting)]

    @property
    def full(self) -> bool:
        """Whether every slot there may be is taken."""
        return self.limit is not None and len(self._members) >= self.limit

    def join(self, name: str, process: str) -> Member:
        """Put a new member into the lowest free slot; its clock starts at the minimum of the live."""
        slot = heapq.heappop(self._free) if self._free else len(self._members)
        self._incarnations[slot] += 1
        member = Member(
            name=name,
            process=process,
            slot=slot,
            incarnation=self._incarnations[slot],
            sequence=self._sequences.get(slot, 0),
            clock=self.minimum_clock,
        )
        self._members[slot] = self.by_name[name] = member
        self._waiting.add(slot)
        self._clocks[member.clock] += 1
        return member

    def leave(self, member: Member) -> None:
        """Take a member out; the slot keeps its sequence number."""
        self.rest(member)
        self._waiting.discard(member.slot)
        heapq.heappush(self._free, member.slot)
        del self._members[member.slot], self.by_name[member.name]
        self._drop_clock(member.clock)
        self._raise_minimum()

    def release(self, member: Member, version: int) -> None:
        """Count `member` as busy with its next gradient, on `version`."""
        member.sequence += 1
        self.reserve(member.slot, member.sequence)
        member.version = member.counter = version
        member.announced.clear()
        self.busy += not member.busy
        member.busy = True
        self._waiting.discard(member.slot)

    def reserve(self, slot: int, sequence: int) -> None:
        """Let the next process in `slot` begin beyond gradient `sequence`, which is a name that has been given."""
        self._sequences[slot] = max(self._sequences.get(slot, 0), sequence)

    def catch_up(self, member: Member, sequence: int, version: int) -> None:
        """Count `member` as released for gradient `sequence`, by a coordinator that is gone."""
        member.sequence = sequence - 1
        self.release(member, version)

    def rest(self, member: Member) -> None:
        """Count `member` as no longer computing."""
        self.busy -= member.busy
        member.busy = False
        self._waiting.add(member.slot)

    def tick(self, member: Member) -> bool:
        """Advance the member's clock by one; return whether the minimum clock moved."""
        self._drop_clock(member.clock)
        member.clock += 1
        self._clocks[member.clock] += 1
        return self._raise_minimum()

    def _drop_clock(self, clock: int) -> None:
        left = self._clocks[clock] - 1
        if left:
            self._clocks[clock] = left
        else:
            self._clocks.pop(clock)  # to delete from a Counter takes longer

    def _raise_minimum(self) -> bool:
        # The common case moves by one; only departures can make it jump, and an empty roster keeps the last minimum.
        if not self._clocks or self.minimum_clock in self._clocks:
            return False
        following = self.minimum_clock + 1
        self.minimum_clock = following if following in self._clocks else min(self._clocks)
        return True
