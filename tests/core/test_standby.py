"""The standby supervisor: in the coordinator's state, event by event, and in charge only with a granted claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Protection, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Appoint, Claim, Depart, Effect, Finish, Send, SetTimer, TakeOver
from psplatform.core.protocol.events import Begin, Claimed, CoordinatorLost, Evaluated, ModelSaved, StopRequested, Tick
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.core.supervision.standby import Standby
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous

LOST = CoordinatorLost("killed", 0.5)


@pytest.fixture
def pair() -> Callable[..., tuple[ReplicatedCoordinator, Standby]]:
    """Make a lead that has begun, and its standby."""

    def make(**given: Any) -> tuple[ReplicatedCoordinator, Standby]:
        plan = Plan(
            "run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant(),
            protection=Protection(1),
        )  # fmt: skip
        lead = ReplicatedCoordinator(Coordinator(plan, Asynchronous()))
        lead.handle(Begin(), 0.0)
        return lead, Standby(2, *lead.enlist(2, 0.0), timers={"absence": 60.0}, **given)

    return make


def observations(lead: ReplicatedCoordinator, *events: Any) -> list[msg.LogEntry]:
    """Let the lead handle events; return what its standby gets to hear."""
    sent = [one for event in events for one in lead.handle(event, 1.0)]
    return [one.message for one in sent if isinstance(one, Send) and isinstance(one.message, msg.LogEntry)]


def witnessed(effects: list[Effect]) -> list[int]:
    return [
        one.message.number for one in effects if isinstance(one, Send) and isinstance(one.message, msg.Acknowledged)
    ]


def to_the_end(lead: ReplicatedCoordinator, standby: Standby) -> None:
    for one in observations(lead, StopRequested("enough"), Evaluated(0, None, None), ModelSaved(0)):
        standby.handle(one, 1.0)


# --- following ---


def test_it_handles_what_the_lead_has_handled_at_the_same_time(pair: Any) -> None:
    lead, standby = pair()
    (one,) = observations(lead, msg.Join("a", "p"))
    assert standby.handle(one, 7.0) == [Send(COORDINATOR, msg.Acknowledged(2, 2))]
    assert standby.coordinator.state.now == 1.0
    assert standby.coordinator.state.roster.by_name.get("a") == lead.coordinator.state.roster.by_name.get("a")


def test_events_are_handled_in_their_order_whatever_order_they_arrive_in(pair: Any) -> None:
    lead, standby = pair()
    first, second, third = observations(lead, msg.Join("a", "p"), msg.Join("b", "p"), msg.Leave("a", "r"))
    assert witnessed(standby.handle(third, 1.0)) == [1]
    assert witnessed(standby.handle(first, 1.0)) == [2]
    assert witnessed(standby.handle(second, 1.0)) == [4]
    assert [one.name for one in standby.coordinator.state.roster.members()] == ["b"]


def test_an_event_that_comes_twice_is_handled_once(pair: Any) -> None:
    lead, standby = pair()
    (one,) = observations(lead, msg.Join("a", "p"))
    for _ in range(2):
        assert witnessed(standby.handle(one, 1.0)) == [2]
    assert standby.coordinator.state.live == 1


def test_of_what_comes_of_an_event_only_timers_and_records_are_kept(pair: Any) -> None:
    lead, standby = pair()
    (one,) = observations(lead, msg.Join("a", "p"))
    effects = standby.handle(one, 1.0)
    assert [type(effect) for effect in effects] == [Send]
    assert "absence" not in standby.timers
    assert [record["kind"] for record in standby.records] == ["joined", "start"]
    standby.forget_records(1)
    assert [record["kind"] for record in standby.records] == ["start"]


def test_word_of_another_term_is_not_handled(pair: Any) -> None:
    _, standby = pair()
    assert standby.handle(msg.LogEntry(9, 2, 1.0, msg.Join("a", "p")), 1.0) == []
    assert standby.handled == 1


# --- leases ---


def test_the_lead_gets_a_lease_as_long_as_it_is_not_given_up(pair: Any) -> None:
    _, standby = pair(grants=Grants(1.0, 5.0))
    assert standby.handle(msg.Beat("coordinator", 8.0), 1.0) == [Send(COORDINATOR, msg.Lease(2, 8.0, 3.0))]
    standby.handle(LOST, 1.5)
    assert standby.handle(msg.Beat("coordinator", 9.0), 2.0) == []


def test_a_silent_lead_is_given_up_when_its_lease_is_over(pair: Any) -> None:
    _, standby = pair(grants=Grants(1.0, 5.0))
    assert standby.handle(Tick(), 2.9) == []
    assert standby.handle(Tick(), 3.0) == [Claim(2)]
    assert standby.handle(Tick(), 4.0) == []


def test_without_leases_only_the_end_of_the_process_counts(pair: Any) -> None:
    _, standby = pair()
    assert standby.handle(Tick(), 999.0) == []
    assert standby.handle(msg.Beat("coordinator", 0.0), 1.0) == []


def test_risen_it_waits_for_the_longest_lease_it_has_heard_of(pair: Any) -> None:
    _, standby = pair(grants=Grants(1.0, 9.0))
    standby.handle(msg.Beat("coordinator", 1.0, 2.5), 1.0)
    standby.handle(msg.Beat("coordinator", 0.5, 9.0), 1.1)
    standby.handle(LOST, 1.5)
    risen, _ = standby.rise(2.0, grants=Grants(1.0, 9.0))
    risen.handle(Tick(), 2.0)
    risen.handle(msg.Beat("replica-0-0", 2.1), 2.1)
    assert not any(isinstance(one, Send) for one in risen.handle(Tick(), 4.4))
    assert any(isinstance(one, Send) for one in risen.handle(Tick(), 4.5))


# --- taking over ---


def test_it_takes_over_only_with_a_granted_claim(pair: Any) -> None:
    _, standby = pair()
    assert standby.handle(LOST, 1.0) == [Claim(2)]
    assert standby.handle(LOST, 1.0) == []
    assert standby.handle(Claimed(3, granted=True), 1.0) == []
    assert standby.handle(Claimed(2, granted=True), 1.0) == [TakeOver(2)]


def test_without_its_number_it_goes(pair: Any) -> None:
    _, standby = pair()
    standby.handle(LOST, 1.0)
    (departed,) = standby.handle(Claimed(2, granted=False), 1.0)
    assert isinstance(departed, Depart)
    assert standby.handle(LOST, 2.0) == []


def test_a_grant_that_was_not_asked_for_is_none(pair: Any) -> None:
    _, standby = pair()
    assert standby.handle(Claimed(2, granted=True), 1.0) == []


def test_who_takes_over_a_run_that_is_over_ends_it_and_does_nothing_else(pair: Any) -> None:
    """The lost coordinator may not have come to that; if it has, the number cannot be had any more."""
    lead, standby = pair()
    to_the_end(lead, standby)
    assert standby.handle(LOST, 2.0) == [Claim(2)]
    assert standby.handle(Claimed(2, granted=True), 2.0) == [TakeOver(2)]
    successor, effects = standby.rise(2.0)
    assert effects == [Finish("stopped", "enough", None)]
    assert successor.over
    assert successor.term == 2


def test_what_the_lost_lead_still_had_to_say_is_not_handled_any_more(pair: Any) -> None:
    lead, standby = pair()
    (one,) = observations(lead, msg.Join("a", "p"))
    standby.handle(LOST, 1.0)
    assert standby.handle(one, 1.0) == []
    assert standby.coordinator.state.live == 0


def test_risen_it_asks_everybody_and_sets_the_timers_that_were_set(pair: Any) -> None:
    lead, standby = pair()
    (one,) = observations(lead, msg.Join("a", "p"))
    standby.handle(one, 1.0)
    standby.timers["pool:0"] = 7.0
    standby.handle(LOST, 1.5)
    risen, effects = standby.rise(2.0)
    assert SetTimer("pool:0", 7.0) in effects
    asked = [each.to for each in effects if isinstance(each, Send) and isinstance(each.message, msg.StateRequest)]
    assert asked == [Role.copy("server-0"), Role.copy("replica-0-0"), Role.member("a")]
    assert (risen.term, risen.handled, risen.standbys, risen.next_number) == (2, 2, {}, 3)
    assert standby.handle(one, 2.0) == []


def test_a_risen_lead_appoints_nobody_before_it_is_up_to_date(pair: Any) -> None:
    _, standby = pair()
    standby.handle(LOST, 1.5)
    risen, _ = standby.rise(2.0)
    assert [type(one).__name__ for one in risen.handle(msg.Join("b", "p"), 2.0)] == []
    effects = risen.handle(msg.ServerState(0, "server-0", 2, 1, True, 0, ()), 2.1)
    assert "Appoint" in [type(one).__name__ for one in effects]
    assert risen.coordinator.state.live == 1, "what came too early was kept"


# --- beside other standbys ---


def test_it_needs_the_lower_numbers_as_well_and_claims_its_own_first(pair: Any) -> None:
    """A coordinator that goes on without it must not lose its other standby by that."""
    lead, _ = pair()
    third = Standby(4, *lead.enlist(4, 0.0), lowest_number=2)
    assert third.handle(LOST, 1.0) == [Claim(4)]
    first, second = third.handle(Claimed(4, granted=True), 1.1)
    assert [(one.number, one.out, one.after_s > 0) for one in (first, second)] == [(2, True, True), (3, True, True)]
    assert third.handle(Claimed(3, granted=True), 1.8) == []
    assert third.handle(Claimed(3, granted=True), 1.8) == []
    assert third.handle(Claimed(2, granted=True), 1.9) == [TakeOver(4)]


def test_it_goes_when_a_lower_one_has_taken_over(pair: Any) -> None:
    lead, _ = pair()
    second = Standby(3, *lead.enlist(3, 0.0), lowest_number=2)
    second.handle(LOST, 1.0)
    second.handle(Claimed(3, granted=True), 1.1)
    (departed,) = second.handle(Claimed(2, granted=False), 1.7)
    assert isinstance(departed, Depart)
    assert second.handle(Claimed(2, granted=True), 1.8) == []


def test_it_claims_no_number_of_another_where_its_own_is_gone(pair: Any) -> None:
    lead, _ = pair()
    second = Standby(3, *lead.enlist(3, 0.0), lowest_number=2)
    second.handle(LOST, 1.0)
    (departed,) = second.handle(Claimed(3, granted=False), 1.1)
    assert isinstance(departed, Depart)


def test_risen_it_appoints_as_many_as_are_wanted(pair: Any) -> None:
    _, standby = pair()
    standby.handle(LOST, 1.0)
    standby.handle(Claimed(2, granted=True), 1.0)
    risen, _ = standby.rise(1.0, appoints=2)
    appointed = risen.handle(msg.ServerState(0, "server-0", 2, 1, True, 0, (), ()), 1.1)
    assert [one.number for one in appointed if isinstance(one, Appoint)] == [3, 4]
