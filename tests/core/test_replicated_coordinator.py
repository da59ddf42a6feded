"""The coordinator in its surroundings: what waits for the standby, who gets leases, and when it steps down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Protection, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Appoint, Claim, Consult, Depart, Effect, Finish, SaveModel, Send
from psplatform.core.protocol.events import (
    Begin,
    Claimed,
    Consulted,
    CoordinatorLost,
    CopyAwake,
    CopyLost,
    Evaluated,
    ModelSaved,
    NoCopy,
    StandbyLost,
    StopRequested,
    Tick,
    TimerFired,
)
from psplatform.core.protocol.names import STANDBY, Role
from psplatform.core.supervision.leases import Grants
from psplatform.core.supervision.replicated_coordinator import MOST_BEHIND, ReplicatedCoordinator
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous

INERT = NoCopy(0, "nothing")


@pytest.fixture
def lead() -> Callable[..., ReplicatedCoordinator]:
    """Make a lead of a run with one shard and one replica, which has begun."""

    def make(replicas: int = 1, *, alone: bool = False, **given: Any) -> ReplicatedCoordinator:
        plan = Plan(
            "run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant(),
            protection=Protection(replicas, alone=alone),
        )  # fmt: skip
        made = ReplicatedCoordinator(Coordinator(plan, Asynchronous()), **given)
        made.handle(Begin(), 0.0)
        return made

    return make


def observed(effects: list[Effect]) -> list[int]:
    return [one.message.number for one in effects if isinstance(one, Send) and one.to == STANDBY]


def orders(effects: list[Effect], kind: type) -> list[Any]:
    return [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, kind)]


def of_kind(effects: list[Effect], kind: type) -> list[Any]:
    return [one for one in effects if isinstance(one, kind)]


def test_an_event_that_raises_leaves_no_gap_in_what_standbys_are_told(
    lead: Callable[..., ReplicatedCoordinator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby waits for the next number: behind a gap, what ends the run would never be acknowledged."""
    one = lead(appoints=1)
    one.enlist(1, 0.0)
    before, handle = observed(one.handle(INERT, 1.0)), one.coordinator.handle

    def broken(event: Any, now: float) -> Any:
        monkeypatch.setattr(one.coordinator, "handle", handle)
        raise ArithmeticError

    monkeypatch.setattr(one.coordinator, "handle", broken)
    with pytest.raises(ArithmeticError):
        one.handle(INERT, 2.0)
    assert observed(one.handle(INERT, 3.0)) == [before[0] + 1]


# --- appointing ---


def test_a_standby_is_appointed_once_with_the_next_number(lead: Any) -> None:
    made = ReplicatedCoordinator(lead().coordinator, appoints=1)
    assert of_kind(made.handle(INERT, 0.0), Appoint) == [Appoint(2)]
    assert of_kind(made.handle(INERT, 0.0), Appoint) == []


def test_nobody_is_appointed_where_nobody_is_wanted(lead: Any) -> None:
    assert of_kind(lead().handle(INERT, 0.0), Appoint) == []


def test_where_none_could_be_made_one_is_appointed_again(lead: Any) -> None:
    made = lead(appoints=1)
    made.without_standby(2)
    assert of_kind(made.handle(INERT, 0.0), Appoint) == [Appoint(3)]


def test_nobody_is_appointed_when_the_run_is_over(lead: Any) -> None:
    made = lead(appoints=1)
    made.handle(StopRequested("enough"), 0.0)
    made.handle(Evaluated(0, None, None), 0.0)
    made.handle(ModelSaved(0), 0.0)
    assert made.over
    made.without_standby(2)
    assert of_kind(made.handle(INERT, 0.0), Appoint) == []


def test_a_standby_begins_with_a_copy_that_goes_its_own_way(lead: Any) -> None:
    made = lead()
    coordinator, handled = made.enlist(2, 0.0)
    assert handled == 1
    made.handle(msg.Join("a", "p"), 1.0)
    assert (made.coordinator.state.live, coordinator.state.live) == (1, 0)
    coordinator.handle(msg.Join("b", "p"), 1.0)
    assert [one.name for one in made.coordinator.state.roster.members()] == ["a"]
    assert coordinator.ending._state is coordinator.state


# --- witnessing ---


def test_every_event_is_sent_to_the_standby_before_anything_comes_of_it(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    effects = made.handle(msg.Join("a", "p"), 1.5)
    assert effects[0] == Send(STANDBY, msg.LogEntry(1, 2, 1.5, msg.Join("a", "p")))
    assert observed(made.handle(TimerFired("start:a"), 2.0)) == [3]


def test_a_promotion_waits_until_its_reason_is_witnessed(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    effects = made.handle(CopyLost("server-0", "there", "killed"), 1.0)
    assert orders(effects, msg.Promote) == []
    assert made.handle(msg.Acknowledged(2, 1), 1.1) == []
    released = made.handle(msg.Acknowledged(2, 2), 1.2)
    assert released == [Send(Role.copy("replica-0-0"), msg.Promote(1, 2))]
    assert made.handle(msg.Acknowledged(2, 2), 1.3) == []


def test_passing_over_a_position_waits_and_what_is_to_be_applied_does_not(lead: Any) -> None:
    """A shard that lacks something of which nobody knows why would look like any other."""
    made = lead()
    made.enlist(2, 0.0)
    made.handle(msg.Join("a", "p"), 1.0)
    said = msg.Announce("a", 1, msg.Label((0,), (1,)), 4, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0)
    (commit,) = orders(made.handle(said, 1.1), msg.Commit)
    assert (commit.position, len(commit.contributions)) == (1, 1)
    assert orders(made.handle(msg.Unreachable(0, 1, 1), 1.2), msg.Commit) == []
    assert made.handle(msg.Acknowledged(2, 3), 1.3) == []
    (passed,) = orders(made.handle(msg.Acknowledged(2, 4), 1.4), msg.Commit)
    assert (passed.position, passed.contributions) == (1, ())


def test_excluding_a_replica_waits_as_well(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    assert orders(made.handle(CopyLost("replica-0-0", "there", "killed"), 1.0), msg.Exclude) == []
    made.handle(Consulted(2), 1.1)
    assert len(orders(made.handle(msg.Acknowledged(2, 2), 1.2), msg.Exclude)) == 1


def test_the_end_waits_as_well(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    made.handle(StopRequested("enough"), 1.0)
    assert of_kind(made.handle(Evaluated(0, None, None), 1.0), SaveModel) == []
    assert len(of_kind(made.handle(msg.Acknowledged(2, 3), 1.0), SaveModel)) == 1
    assert of_kind(made.handle(ModelSaved(0), 1.0), Finish) == []
    assert len(of_kind(made.handle(msg.Acknowledged(2, 4), 1.0), Finish)) == 1


def test_whoever_was_stopped_does_nothing_that_was_witnessed_before_until_its_standby_is_heard_again(lead: Any) -> None:
    """It may have taken over meanwhile, and then it is not heard."""
    made = lead(grants=Grants(1.0, 10.0))
    made.enlist(2, 0.0)
    made.handle(CopyLost("server-0", "there", "killed"), 1.0)
    assert made.handle(msg.Acknowledged(2, 2), 9.0) == []
    promoted = made.handle(msg.Lease(2, 8.9, 2.0), 9.1)
    assert promoted == [Send(Role.copy("replica-0-0"), msg.Promote(1, 2))]
    assert made.handle(msg.Lease(2, 9.0, 2.0), 9.2) == []


def test_what_an_earlier_standby_has_witnessed_counts_for_nothing(lead: Any) -> None:
    made = lead()
    made.enlist(3, 0.0)
    made.handle(CopyLost("server-0", "there", "killed"), 1.0)
    assert made.handle(msg.Acknowledged(2, 99), 1.0) == []


def test_nothing_at_all_happens_while_the_standby_is_far_behind(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    for _ in range(MOST_BEHIND):
        made.handle(INERT, 1.0)
    effects = made.handle(msg.Join("a", "p"), 1.0)
    assert [one for one in effects if not (isinstance(one, Send) and one.to == STANDBY)] == []
    # Nor does what follows overtake it.
    made.handle(INERT, 1.0)
    released = made.handle(msg.Acknowledged(2, MOST_BEHIND), 1.0)
    assert len(orders(released, msg.Welcome)) == 1


# --- going on without a replica ---


def test_a_server_goes_on_without_its_last_replica_only_when_the_scheduler_is_heard(lead: Any) -> None:
    """The side that is cut off must not go on alone: of what it made of the model nobody else would know."""
    made = lead()
    effects = made.handle(CopyLost("replica-0-0", "there", "silent"), 1.0)
    assert (orders(effects, msg.Exclude), of_kind(effects, Consult)) == ([], [Consult(2)])
    (released,) = made.handle(Consulted(2), 1.2)
    assert released == Send(Role.copy("server-0"), msg.Exclude(1, 1, "replica-0-0"))
    assert made.handle(Consulted(2), 1.3) == []


def test_everything_else_goes_on_while_the_scheduler_is_not_heard(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    made.handle(CopyLost("replica-0-0", "there", "silent"), 1.0)
    for number in range(2 * MOST_BEHIND):
        made.handle(INERT, 1.0)
        made.handle(msg.Acknowledged(2, number + 3), 1.0)
    assert len(orders(made.handle(msg.Join("a", "p"), 1.0), msg.Welcome)) == 1


def test_an_answer_from_before_the_loss_counts_for_nothing(lead: Any) -> None:
    made = lead(replicas=2)
    assert of_kind(made.handle(CopyLost("replica-0-0", "there", "silent"), 1.0), Consult) == [], "one is left"
    made.handle(CopyLost("replica-0-1", "there", "silent"), 1.0)
    assert made.handle(Consulted(2), 1.1) == []
    assert len(made.handle(Consulted(3), 1.1)) == 1


def test_a_run_that_is_told_so_goes_on_alone(lead: Any) -> None:
    effects = lead(alone=True).handle(CopyLost("replica-0-0", "there", "silent"), 1.0)
    assert (len(orders(effects, msg.Exclude)), of_kind(effects, Consult)) == (1, [])


# --- several standbys ---


def test_as_many_are_appointed_as_are_wanted_and_again_when_one_is_lost(lead: Any) -> None:
    made = ReplicatedCoordinator(lead().coordinator, appoints=2)
    assert of_kind(made.handle(INERT, 0.0), Appoint) == [Appoint(2), Appoint(3)]
    made.enlist(2, 0.0)
    made.enlist(3, 0.0)
    assert made.handle(StandbyLost(2, "killed"), 0.1) == [Claim(2)]
    assert of_kind(made.handle(Claimed(2, granted=True), 0.2), Appoint) == [Appoint(4)]
    assert made.lowest_number == 3


def test_what_cannot_be_undone_waits_for_every_standby(lead: Any) -> None:
    """Either may take over, and must know of it."""
    made = lead()
    made.enlist(2, 0.0)
    made.enlist(3, 0.0)
    made.handle(CopyLost("server-0", "there", "killed"), 1.0)
    assert made.handle(msg.Acknowledged(3, 2), 1.1) == []
    assert len(orders(made.handle(msg.Acknowledged(2, 2), 1.2), msg.Promote)) == 1


def test_a_lost_standby_is_waited_for_until_its_number_is_claimed(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    made.enlist(3, 0.0)
    made.handle(CopyLost("server-0", "there", "killed"), 1.0)
    made.handle(msg.Acknowledged(3, 2), 1.1)
    made.handle(StandbyLost(2, "killed"), 1.1)
    assert len(orders(made.handle(Claimed(2, granted=True), 1.2), msg.Promote)) == 1


def test_leases_are_given_as_long_as_no_standby_may_have_taken_over(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 5.0))
    made.enlist(2, 0.0)
    made.enlist(3, 0.0)
    made.handle(msg.Lease(2, 2.0, 5.0), 2.1)
    assert made.entitled_until == 3.0, "the other has not been heard"
    assert made.handle(msg.Beat("server-0", 3.0), 3.1) == []
    made.handle(msg.Lease(3, 3.0, 2.0), 3.2)
    assert made.entitled_until == pytest.approx(4.8)


def test_a_longer_lease_is_given_only_when_every_standby_has_heard_of_it(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 9.0))
    made.enlist(2, 0.0)
    made.enlist(3, 0.0)
    made.handle(Tick(), 0.0)
    for at in (0.2, 0.4, 0.6, 1.9):
        for name in ("server-0", "replica-0-0"):
            made.handle(msg.Beat(name, at), at)
    made.handle(Tick(), 2.0)
    made.handle(msg.Lease(2, 2.0, 9.0), 2.1)
    assert given(made.handle(msg.Beat("server-0", 2.2), 2.2)) == 3.0
    made.handle(msg.Lease(3, 2.0, 9.0), 2.3)
    assert given(made.handle(msg.Beat("server-0", 2.4), 2.4)) == pytest.approx(6.5)


# --- losing the standby, or the office ---


def test_a_lead_goes_on_alone_only_if_it_got_its_standby_s_number(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    made.handle(CopyLost("server-0", "there", "killed"), 1.0)
    assert made.handle(StandbyLost(2, "killed"), 1.1) == [Claim(2)]
    assert orders(made.handle(INERT, 1.2), msg.Promote) == []
    released = made.handle(Claimed(2, granted=True), 1.3)
    assert len(orders(released, msg.Promote)) == 1
    assert observed(made.handle(INERT, 1.4)) == []


def test_a_lead_whose_standby_has_its_number_says_nothing_more(lead: Any) -> None:
    made = lead()
    made.enlist(2, 0.0)
    made.handle(StandbyLost(2, "silent"), 1.0)
    (departed,) = made.handle(Claimed(2, granted=False), 1.1)
    assert isinstance(departed, Depart)
    assert made.replaced
    assert made.handle(msg.Join("a", "p"), 1.2) == []


def test_word_of_an_earlier_standby_changes_nothing(lead: Any) -> None:
    made = lead()
    made.enlist(3, 0.0)
    assert made.handle(StandbyLost(2, "killed"), 1.0) == []
    assert made.handle(Claimed(2, granted=False), 1.0) == []
    assert not made.replaced


def test_after_a_lost_standby_another_is_appointed(lead: Any) -> None:
    made = lead(appoints=1)
    made.enlist(2, 0.0)
    made.handle(StandbyLost(2, "killed"), 1.0)
    assert of_kind(made.handle(Claimed(2, granted=True), 1.0), Appoint) == [Appoint(3)]


def test_a_refusal_by_a_higher_term_makes_it_step_down(lead: Any) -> None:
    made = lead()
    assert made.handle(msg.Refused(0, 1, term=1), 0.0) == []
    (departed,) = made.handle(msg.Refused(0, 1, term=2), 0.0)
    assert departed == Depart("a coordinator of term 2 has taken over")
    assert made.handle(INERT, 0.0) == []


# --- leases ---


def test_a_copy_that_beats_gets_a_lease(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 5.0))
    assert made.handle(msg.Beat("server-0", 7.5), 1.0) == [Send(Role.copy("server-0"), msg.Lease(1, 7.5, 3.0))]
    assert made.handle(msg.Beat("stranger", 7.5), 1.0) == []


def test_without_grants_there_are_no_leases(lead: Any) -> None:
    made = lead()
    assert made.handle(msg.Beat("server-0", 0.0), 0.0) == []
    assert made.handle(Tick(), 99.0) == []


def test_a_silent_copy_is_lost_when_its_lease_is_over(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 5.0))
    made.handle(Tick(), 0.0)
    made.handle(msg.Beat("replica-0-0", 0.0), 2.0)
    assert orders(made.handle(Tick(), 2.9), msg.Promote) == []
    (order,) = orders(made.handle(Tick(), 3.0), msg.Promote)
    assert order == msg.Promote(1, 2)


def test_a_silent_server_in_whose_place_nobody_can_serve_is_waited_for_longer(lead: Any) -> None:
    """The run would be over: a promoted replica that is slow to begin is all there is."""
    made = lead(grants=Grants(1.0, 9.0))
    made.handle(Tick(), 0.0)
    made.handle(CopyLost("server-0", "tcp://server-0", "killed"), 1.0)
    made.handle(msg.Beat("replica-0-0", 1.0), 1.0)
    made.handle(Tick(), 9.9)
    assert not made.over
    made.handle(Tick(), 10.0)
    assert made.over


def test_a_shard_whose_copies_are_all_silent_waits_for_the_first_to_be_heard(lead: Any) -> None:
    """Promoting one of them would leave nobody to promote if that one does not come back."""
    made = lead(grants=Grants(1.0, 30.0))
    made.handle(Tick(), 0.0)
    assert orders(made.handle(Tick(), 3.0), msg.Promote) == []
    made.handle(msg.Beat("replica-0-0", 3.5), 3.5)
    assert orders(made.handle(Tick(), 3.6), msg.Promote) == [msg.Promote(1, 2)]


def test_a_shard_whose_copies_are_all_silent_for_the_longest_lease_is_lost(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 30.0))
    made.handle(Tick(), 0.0)
    made.handle(Tick(), 29.9)
    assert not made.over
    made.handle(Tick(), 30.0)
    assert made.over


def test_what_is_in_the_store_cannot_fall_silent_before_a_process_is_made_of_it() -> None:
    """However long that takes; from then on it can."""
    plan = Plan(
        "run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant(),
        protection=Protection(1, cold=True),
    )  # fmt: skip
    made = ReplicatedCoordinator(Coordinator(plan, Asynchronous()), grants=Grants(1.0, 5.0))
    made.handle(Begin(), 0.0)
    made.handle(CopyLost("server-0", "tcp://server-0", "killed"), 1.0)
    for at in (1.0, 100.0):
        assert made.handle(Tick(), at) == []
    made.handle(CopyAwake(0, "replica-0-0", "tcp://b:1 pid 8"), 100.0)
    assert made.handle(Tick(), 100.0) == []
    assert not made.over
    made.handle(Tick(), 106.0)
    assert made.over, "it had no replica in sync yet"


def test_a_lead_that_holds_no_lease_itself_gives_none(lead: Any) -> None:
    """Its standby may have taken over: copies that beat here would act for the wrong one."""
    made = lead(grants=Grants(1.0, 5.0))
    made.enlist(2, 0.0)
    assert len(made.handle(msg.Beat("server-0", 0.0), 2.9)) == 1
    assert made.handle(msg.Beat("server-0", 3.0), 3.1) == []
    made.handle(msg.Lease(2, 3.0, 2.0), 3.2)
    assert made.entitled_until == pytest.approx(4.8)
    assert len(made.handle(msg.Beat("server-0", 4.0), 4.1)) == 1
    made.handle(msg.Lease(7, 9.0, 2.0), 4.2)
    assert made.entitled_until == pytest.approx(4.8), "a lease of somebody else's"


def test_a_lead_asks_its_standby_for_a_lease_and_misses_it_when_it_is_silent(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 5.0))
    made.enlist(2, 0.0)
    assert Send(STANDBY, msg.Beat("coordinator", 1.0, 3.0)) in made.handle(Tick(), 1.0)
    for name in ("server-0", "replica-0-0"):
        made.handle(msg.Beat(name, 1.0), 1.0)
    assert of_kind(made.handle(Tick(), 3.0), Claim) == [Claim(2)]


def given(effects: list[Any]) -> float:
    (one,) = effects
    return float(one.message.seconds)


def test_a_longer_lease_is_given_only_when_the_standby_has_heard_of_it(lead: Any) -> None:
    """It would wait for the end of one that it has heard of, and then another would serve beside the holder."""
    made = lead(grants=Grants(1.0, 9.0))
    made.enlist(2, 0.0)
    made.handle(Tick(), 0.0)
    made.handle(msg.Lease(2, 0.0, 3.0), 0.1)
    for at in (0.2, 0.4, 0.6, 1.9):
        for name in ("server-0", "replica-0-0"):
            seconds = given(made.handle(msg.Beat(name, at), at))
    assert seconds == 3.0, "six and a half are wanted, three are known of"
    (beat,) = [one.message for one in made.handle(Tick(), 2.0) if isinstance(one, Send)]
    assert beat.longest_s == pytest.approx(6.5)
    assert given(made.handle(msg.Beat("server-0", 2.1), 2.1)) == 3.0
    made.handle(msg.Lease(2, 2.0, 3.0), 2.2)
    assert given(made.handle(msg.Beat("server-0", 2.3), 2.3)) == pytest.approx(6.5)


def test_without_a_standby_nothing_but_the_limits_holds_a_lease_short(lead: Any) -> None:
    made = lead(grants=Grants(1.0, 9.0))
    made.enlist(2, 0.0)
    made.handle(Tick(), 0.0)
    made.handle(StandbyLost(2, "killed"), 0.1)
    made.handle(Claimed(2, granted=True), 0.1)
    for at in (0.2, 0.4, 0.6, 1.9):
        for name in ("server-0", "replica-0-0"):
            seconds = given(made.handle(msg.Beat(name, at), at))
    assert seconds == pytest.approx(6.5)


def test_a_worker_waits_only_when_it_has_been_heard_and_is_not_released(lead: Any) -> None:
    """Who joins is released at once here; one whose run is over is told so, and not released."""
    one = lead(0)
    assert not one.is_waiting("worker-1"), "nobody knows it"
    one.handle(msg.Join("worker-1", "here"), 1.0)
    assert not one.is_waiting("worker-1")
    one.handle(StopRequested("enough"), 2.0)
    figures = {"samples": 4, "loss": 0.5, "squared_norm": 1.0, "compute_s": 1.0, "pull_s": 0.0, "push_s": 0.0}
    one.handle(msg.Announce("worker-1", 1, msg.Label((0,), (1,)), wait_s=0.0, **figures), 3.0)
    assert one.is_waiting("worker-1")
    one.handle(msg.Leave("worker-1", "told so"), 4.0)
    assert not one.is_waiting("worker-1")


def test_while_servers_have_still_to_be_heard_after_a_takeover_no_worker_is_kept_waiting(lead: Any) -> None:
    """It is to say where it stands."""
    one = lead(0)
    one.handle(msg.Join("worker-1", "here"), 1.0)
    figures = {"samples": 4, "loss": 0.5, "squared_norm": 1.0, "compute_s": 1.0, "pull_s": 0.0, "push_s": 0.0}
    one.coordinator.take_over(2, CoordinatorLost("killed"), 2.0)
    one.handle(msg.Announce("worker-1", 1, msg.Label((0,), (1,)), wait_s=0.0, **figures), 3.0)
    assert not one.is_waiting("worker-1")
