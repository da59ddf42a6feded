"""Slots outlive the processes in them: sequences go on, clocks never fall behind, counts are always right."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from psplatform.core.coordination.members.roster import Member, Roster


def joined(roster: Roster, *names: str) -> list[Member]:
    return [roster.join(name, f"process of {name}") for name in names]


def test_joiners_get_the_lowest_free_slot() -> None:
    roster = Roster(None)
    a, b, c = joined(roster, "a", "b", "c")
    roster.leave(b)
    (d,) = joined(roster, "d")
    assert [one.slot for one in (a, b, c, d)] == [0, 1, 2, 1]


def test_the_next_process_in_a_slot_continues_its_sequence_as_another_incarnation() -> None:
    roster = Roster(None)
    (first,) = joined(roster, "first")
    for version in range(3):
        roster.release(first, version)
        roster.rest(first)
    roster.leave(first)
    (second,) = joined(roster, "second")
    assert (second.slot, second.sequence, second.incarnation) == (0, 3, 2)
    assert second.version == -1
    roster.release(second, 5)
    assert (second.sequence, second.version) == (4, 5)


def test_the_next_process_in_a_slot_begins_beyond_what_is_reserved() -> None:
    roster = Roster(None)
    (first,) = joined(roster, "first")
    roster.release(first, 0)
    roster.reserve(0, 3)
    roster.rest(first)
    roster.release(first, 1)
    assert first.sequence == 2
    roster.leave(first)
    (second,) = joined(roster, "second")
    assert second.sequence == 3


def test_a_joiner_s_clock_starts_at_the_minimum_of_the_live() -> None:
    roster = Roster(None)
    a, b = joined(roster, "a", "b")
    for _ in range(3):
        roster.tick(a)
    roster.tick(b)
    (c,) = joined(roster, "c")
    assert c.clock == 1


def test_ticking_says_whether_the_minimum_clock_moved() -> None:
    roster = Roster(None)
    a, b = joined(roster, "a", "b")
    assert not roster.tick(a)
    assert roster.tick(b)
    assert roster.minimum_clock == 1


def test_the_minimum_clock_jumps_when_the_slowest_leaves() -> None:
    roster = Roster(None)
    slow, fast = joined(roster, "slow", "fast")
    for _ in range(5):
        roster.tick(fast)
    roster.leave(slow)
    assert roster.minimum_clock == 5


def test_an_empty_roster_keeps_its_minimum_clock_for_the_next_joiner() -> None:
    roster = Roster(None)
    (a,) = joined(roster, "a")
    roster.tick(a)
    roster.leave(a)
    (b,) = joined(roster, "b")
    assert (roster.minimum_clock, b.clock) == (1, 1)


def test_a_roster_is_full_at_its_limit_only() -> None:
    roster = Roster(2)
    a, _ = joined(roster, "a", "b")
    assert roster.full
    roster.leave(a)
    assert not roster.full
    assert not Roster(None).full


@dataclass
class Model:
    """The same facts, recomputed from scratch each time they are asked for."""

    clocks: dict[str, int] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    sequences: dict[int, int] = field(default_factory=dict)
    minimum: int = 0

    def note_minimum(self) -> None:
        self.minimum = min(self.clocks.values(), default=self.minimum)


class RosterMachine(RuleBasedStateMachine):
    """Any order of joins, releases, rests, ticks and departures agrees with the naive model."""

    def __init__(self) -> None:
        super().__init__()
        self.roster = Roster(None)
        self.model = Model()
        self.count = 0

    def pick(self, data: st.DataObject) -> Member:
        return data.draw(st.sampled_from(self.roster.members()))

    @rule()
    def join(self) -> None:
        self.count += 1
        name = f"m{self.count}"
        taken = set(self.model.slots.values())
        self.model.slots[name] = min(set(range(len(taken) + 1)) - taken)
        self.model.clocks[name] = self.model.minimum
        self.roster.join(name, "somewhere")

    @precondition(lambda self: self.model.slots)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self.pick(data)
        self.roster.leave(member)
        self.model.busy.discard(member.name)
        del self.model.slots[member.name], self.model.clocks[member.name]
        self.model.note_minimum()

    @precondition(lambda self: self.model.slots)
    @rule(data=st.data(), version=st.integers(0, 9))
    def release(self, data: st.DataObject, version: int) -> None:
        member = self.pick(data)
        self.roster.release(member, version)
        self.model.busy.add(member.name)
        slot = self.model.slots[member.name]
        self.model.sequences[slot] = self.model.sequences.get(slot, 0) + 1
        assert member.version == version

    @precondition(lambda self: self.model.slots)
    @rule(data=st.data())
    def rest(self, data: st.DataObject) -> None:
        member = self.pick(data)
        self.roster.rest(member)
        self.model.busy.discard(member.name)

    @precondition(lambda self: self.model.slots)
    @rule(data=st.data())
    def tick(self, data: st.DataObject) -> None:
        member = self.pick(data)
        before = self.model.minimum
        moved = self.roster.tick(member)
        self.model.clocks[member.name] += 1
        self.model.note_minimum()
        assert moved == (self.model.minimum != before)

    @invariant()
    def agrees(self) -> None:
        model, roster = self.model, self.roster
        by_slot = sorted((slot, name) for name, slot in model.slots.items())
        assert [(one.slot, one.name) for one in roster.members()] == by_slot
        assert [one.name for one in roster.waiting()] == [name for _, name in by_slot if name not in model.busy]
        assert roster.busy == len(model.busy)
        assert roster.minimum_clock == model.minimum
        assert {one.name: one.clock for one in roster.members()} == model.clocks
        assert all(one.sequence == model.sequences.get(one.slot, 0) for one in roster.members())


TestRosterMachine = RosterMachine.TestCase
TestRosterMachine.settings = settings(max_examples=60, stateful_step_count=40)
