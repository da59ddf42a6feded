"""What one worker's process sums for others: each bundle once, in the coordinator's order, whatever arrives when."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.effects import Effect, ForgetParts, ForgetSum, Send, SumUp
from psplatform.core.protocol.events import PartArrived, SumReachable
from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.core.protocol.names import COORDINATOR
from psplatform.core.workers.aggregator import OWN, Aggregator

SEEDS = 200


@dataclass
class Host:
    """An aggregator and the parts that lie beside it, as its worker's process has them."""

    aggregator: Aggregator = field(default_factory=lambda: Aggregator("w"))
    parts: dict[Bundle, set[tuple[str, int]]] = field(default_factory=dict)
    sums: list[SumUp] = field(default_factory=list)

    def handle(self, event: Any) -> list[Effect]:
        """Feed one event, and execute what comes of it: what is to be summed must lie there."""
        if isinstance(event, PartArrived):
            self.parts.setdefault(event.bundle, set()).add((event.member, event.sequence))
        effects = self.aggregator.handle(event, 0.0)
        for one in effects:
            if isinstance(one, SumUp):
                assert {(each.member, each.sequence) for each in one.gradients} <= self.parts[one.bundle]
                self.sums.append(one)
            elif isinstance(one, ForgetParts):
                self.parts.pop(one.bundle, None)
        return effects

    def summed(self, number: int, *gradients: Contribution) -> Host:
        """Bring a bundle to where its sum is sent."""
        for one in gradients:
            self.handle(part(number, one))
        assert self.handle(assemble(number, *gradients)) == [SumUp(bundle(number), gradients)]
        return self


def bundle(number: int, term: int = 1) -> Bundle:
    return Bundle("w", term, number)


def gradient(slot: int, sequence: int = 5) -> Contribution:
    return Contribution(f"m{slot}", slot, sequence)


def part(number: int, one: Contribution, term: int = 1) -> PartArrived:
    return PartArrived(bundle(number, term), one.member, one.sequence)


def assemble(number: int, *gradients: Contribution, term: int = 1, oldest: int = 0) -> msg.Assemble:
    return msg.Assemble(term, number, gradients, oldest, term if oldest else 0)


A, B, C = (gradient(slot) for slot in range(3))


# --- one bundle ---


def test_a_bundle_is_summed_with_the_last_that_it_needs_in_the_order_that_was_said() -> None:
    for *early, last in itertools.permutations([part(1, A), part(1, B), part(1, C), assemble(1, B, C, A)]):
        host = Host()
        assert [host.handle(event) for event in early] == [[], [], []]
        assert host.handle(last) == [SumUp(bundle(1), (B, C, A))]


def test_a_bundle_of_one_is_summed_too() -> None:
    assert Host().summed(1, A).aggregator.bundles == 1


def test_parts_of_a_bundle_that_nobody_has_ordered_are_kept_and_not_summed() -> None:
    host = Host()
    for one in (A, B, C):
        assert host.handle(part(1, one)) == []
    assert host.aggregator.bundles == 1


@pytest.mark.parametrize("other", [gradient(1, sequence=4), gradient(1, sequence=6), gradient(3)], ids=repr)
def test_another_gradient_is_not_what_a_sum_waits_for(other: Contribution) -> None:
    host = Host()
    for event in (assemble(1, A, B), part(1, A), part(1, other)):
        assert host.handle(event) == []
    assert host.handle(part(1, B)) == [SumUp(bundle(1), (A, B))], "and what is not in the bundle is not summed"


def test_a_bundle_is_summed_once_however_often_its_parts_and_the_order_come() -> None:
    host = Host()
    for event in (assemble(1, A, B), assemble(1, A, B), part(1, A), part(1, A)):
        assert host.handle(event) == []
    assert host.handle(part(1, B)) == [SumUp(bundle(1), (A, B))]
    for event in (part(1, A), part(1, B), assemble(1, A, B), part(1, B)):
        assert host.handle(event) == []


def test_the_coordinator_hears_of_a_sum_once_and_only_the_sum_is_needed_from_then_on() -> None:
    host = Host().summed(1, A, B)
    reachable = SumReachable(bundle(1), 0.25)
    bundled = Send(COORDINATOR, msg.Bundled(bundle(1), 0.25, (0.0, 0.0)))
    assert sorted(host.handle(reachable), key=repr) == sorted([ForgetParts(bundle(1)), bundled], key=repr)
    assert host.handle(reachable) == []
    assert (host.aggregator.bundles, host.parts) == (0, {})


def test_nothing_is_said_of_a_sum_that_was_never_begun() -> None:
    assert Host().handle(SumReachable(bundle(1), 0.25)) == []


# --- several bundles ---


def test_two_bundles_of_the_same_members_do_not_mix() -> None:
    host = Host()
    host.handle(assemble(1, A, B))
    host.handle(assemble(2, B, A))
    assert host.handle(part(1, A)) == host.handle(part(2, B)) == []
    assert host.handle(part(2, A)) == [SumUp(bundle(2), (B, A))]
    assert host.handle(SumReachable(bundle(2), 1.0)) != []
    assert host.handle(part(1, B)) == [SumUp(bundle(1), (A, B))]


def test_bundles_of_the_same_number_of_two_coordinators_do_not_mix() -> None:
    host = Host()
    host.handle(part(1, A, term=1))
    host.handle(part(1, B, term=2))
    assert host.handle(assemble(1, A, B, term=1)) == []
    assert ForgetParts(bundle(1, term=1)) in host.handle(assemble(1, A, B, term=2))
    assert host.handle(part(1, A, term=2)) == [SumUp(bundle(1, term=2), (A, B))]


# --- what is over ---


def test_bundles_below_the_oldest_are_forgotten_and_no_others() -> None:
    host = Host()
    for number in (1, 2, 3):
        host.handle(assemble(number, A, B))
        host.handle(part(number, A))
    assert set(host.handle(assemble(4, C, B, oldest=3))) == {ForgetParts(bundle(1)), ForgetParts(bundle(2))}
    assert host.aggregator.bundles == 2
    assert host.handle(part(3, B)) == [SumUp(bundle(3), (A, B))]


def test_what_comes_late_of_a_bundle_that_is_over_is_forgotten() -> None:
    host = Host()
    host.handle(assemble(3, A, B, oldest=3))
    for number in (1, 2):
        for one in (A, B):
            assert host.handle(part(number, one)) == [ForgetParts(bundle(number))]
        assert host.handle(assemble(number, A, B)) == []
    assert host.parts == {}
    assert host.aggregator.bundles == 1


def test_a_sum_that_is_over_before_it_is_reachable_is_not_reported() -> None:
    host = Host().summed(1, A)
    assert host.handle(assemble(2, B, oldest=2)) == [ForgetSum(bundle(1)), ForgetParts(bundle(1))]
    assert host.handle(SumReachable(bundle(1), 0.25)) == []


def test_a_sum_is_kept_until_every_server_shows_what_was_made_of_it() -> None:
    host = Host()
    for number in (1, 2):
        host.summed(number, A)
        host.handle(SumReachable(bundle(number), 0.25))
    assert host.handle(assemble(3, B, oldest=1)) == []
    assert host.handle(assemble(4, B, oldest=2)) == [ForgetSum(bundle(1))]
    assert host.handle(assemble(5, B, oldest=2)) == []


def test_a_sum_is_kept_for_the_next_coordinator_whose_commits_may_be_of_it() -> None:
    host = Host().summed(1, A)
    host.handle(SumReachable(bundle(1), 0.25))
    assert host.handle(msg.StateRequest(2)) == []
    assert host.handle(msg.Assemble(2, 1, (B,), 1, 1)) == []
    assert host.handle(msg.Assemble(2, 2, (B,), 1, 2)) == [ForgetSum(bundle(1))]


def test_a_sum_that_is_given_up_after_it_was_sent_is_forgotten() -> None:
    host = Host().summed(1, A)
    host.handle(SumReachable(bundle(1), 0.25))
    assert host.handle(msg.Assemble(1, 1, ())) == [ForgetSum(bundle(1))]


def test_a_coordinator_that_was_replaced_gives_up_nothing() -> None:
    host = Host().summed(1, A)
    host.handle(SumReachable(bundle(1), 0.25))
    host.handle(msg.StateRequest(2))
    assert host.handle(msg.Assemble(1, 1, ())) == []


def test_an_order_may_forget_others_and_be_complete_at_once() -> None:
    host = Host()
    host.handle(part(1, A))
    host.handle(part(2, B))
    assert host.handle(assemble(2, B, oldest=2)) == [ForgetParts(bundle(1)), SumUp(bundle(2), (B,))]


def test_an_order_that_was_overtaken_forgets_nothing_more_and_brings_nothing_back() -> None:
    host = Host()
    host.handle(assemble(5, A, B, oldest=4))
    assert host.handle(assemble(4, A, B, oldest=2)) == []
    assert host.handle(part(3, A)) == [ForgetParts(bundle(3))]
    assert host.handle(part(4, A)) == []
    assert host.handle(part(4, B)) == [SumUp(bundle(4), (A, B))]


# --- coordinators ---


def test_the_next_coordinator_has_everything_offered_again_so_what_others_had_summed_is_forgotten() -> None:
    host = Host().summed(1, A)
    host.handle(assemble(2, A, B))
    host.handle(part(3, A))
    effects = host.handle(msg.StateRequest(2))
    assert set(effects) == {ForgetSum(bundle(1)), *(ForgetParts(bundle(number)) for number in (1, 2, 3))}
    assert len(effects) == 4
    assert host.aggregator.bundles == 0
    assert host.handle(SumReachable(bundle(1), 0.25)) == []
    assert host.handle(part(9, B)) == [ForgetParts(bundle(9))]


@pytest.mark.parametrize("heard", [msg.StateRequest(3), assemble(1, C, gradient(3), term=3)], ids=["asked", "ordered"])
def test_an_order_of_a_lower_term_than_heard_changes_nothing(heard: Any) -> None:
    host = Host()
    host.handle(heard)
    before = host.aggregator.bundles
    for event in (assemble(7, A, B, term=2), assemble(7, A, B, term=2, oldest=7)):
        assert host.handle(event) == []
    assert host.aggregator.bundles == before
    for one in (A, B):
        assert host.handle(part(7, one, term=2)) == [ForgetParts(bundle(7, term=2))]
    for one in (A, B):
        host.handle(part(2, one, term=3))
    assert host.handle(assemble(2, A, B, term=3)) == [SumUp(bundle(2, term=3), (A, B))]


def test_the_numbers_of_a_lower_term_say_nothing_about_those_of_a_higher() -> None:
    host = Host()
    host.handle(assemble(100, A, B, oldest=100))
    host.handle(msg.StateRequest(2))
    host.handle(part(1, A, term=2))
    assert host.handle(assemble(1, A, term=2)) == [SumUp(bundle(1, term=2), (A,))]


@pytest.mark.parametrize("term", [1, 2])
def test_a_coordinator_that_asks_again_or_no_longer_counts_has_nothing_forgotten(term: int) -> None:
    host = Host()
    host.handle(msg.StateRequest(2))
    host.handle(assemble(1, A, B, term=2))
    host.handle(part(1, A, term=2))
    assert host.handle(msg.StateRequest(term)) == []
    assert host.handle(part(1, B, term=2)) == [SumUp(bundle(1, term=2), (A, B))]


def test_only_requests_for_the_state_are_for_the_session_too() -> None:
    assert {msg.Assemble, PartArrived, SumReachable} == OWN


# --- at random ---


def drawn_bundles(chance: random.Random) -> dict[int, tuple[Contribution, ...]]:
    """Draw what some bundles consist of; a member may be in several of them, with one gradient or with others."""
    return {
        number: tuple(gradient(slot, chance.randint(1, 3)) for slot in chance.sample(range(6), chance.randint(1, 4)))
        for number in range(1, chance.randint(2, 7))
    }


def test_whatever_comes_in_whatever_order_each_bundle_is_summed_once_of_exactly_its_members() -> None:
    for seed in range(SEEDS):
        chance, host = random.Random(seed), Host()
        wanted = drawn_bundles(chance)
        events: list[Any] = []
        for number, gradients in wanted.items():
            once = [assemble(number, *gradients), *(part(number, one) for one in gradients)]
            events += [event for event in once for _ in range(chance.randint(1, 3))]
        chance.shuffle(events)
        left = {number: sum(_number_of(event) == number for event in events) for number in wanted}
        reported = []
        for event in events:
            host.handle(event)
            left[_number_of(event)] -= 1
            for number in [number for number, count in left.items() if not count and chance.random() < 0.5]:
                reported += host.handle(SumReachable(bundle(number), 0.5))
        for number in wanted:
            reported += host.handle(SumReachable(bundle(number), 0.5))
        found = sorted((one.bundle.number, one.gradients) for one in host.sums)
        assert found == sorted(wanted.items()), f"seed {seed}"
        bundled = sorted(one.message.bundle.number for one in reported if isinstance(one, Send))
        assert bundled == sorted(wanted), f"seed {seed}"
        assert (host.aggregator.bundles, host.parts) == (0, {}), f"seed {seed}"


def test_whatever_is_given_up_nothing_is_summed_twice_or_kept_that_is_over() -> None:
    """Coordinators follow each other; each gives up what it likes, and what is said of that comes late and again."""
    for seed in range(SEEDS):
        chance, host = random.Random(seed), Host()
        events: list[Any] = []
        orders: dict[Bundle, tuple[Contribution, ...]] = {}
        for term in (1, 2, 3):
            events.append(msg.StateRequest(term))
            for number, gradients in drawn_bundles(chance).items():
                orders[bundle(number, term)] = gradients
                once = [assemble(number, *gradients, term=term, oldest=chance.randint(0, number))]
                once += [part(number, one, term) for one in gradients]
                events += [event for event in once for _ in range(chance.randint(1, 2))]
        chance.shuffle(events)
        horizon = 0, 0
        for event in events:
            if not isinstance(event, PartArrived):
                horizon = max(horizon, (event.term, getattr(event, "oldest", 0)))
            for one in host.handle(event):
                if isinstance(one, SumUp):
                    assert (one.bundle.term, one.bundle.number) >= horizon, f"seed {seed}: {one} is over"
            over = [one for one in host.parts if (one.term, one.number) < horizon]
            assert over == [], f"seed {seed}"
        summed = [one.bundle for one in host.sums]
        assert len(summed) == len(set(summed)), f"seed {seed}"
        assert all(one.gradients == orders[one.bundle] for one in host.sums), f"seed {seed}"
        kept = {one for one in orders if (one.term, one.number) >= horizon}
        assert kept <= set(summed), f"seed {seed}: what is not over is summed"
        assert host.aggregator.bundles == len(kept), f"seed {seed}"


def _number_of(event: msg.Assemble | PartArrived) -> int:
    return event.number if isinstance(event, msg.Assemble) else event.bundle.number


def test_what_is_repeated_after_the_sum_is_at_the_servers_is_not_summed_again() -> None:
    one, bundle = Aggregator("w"), Bundle("w", 1, 1)
    order, part = msg.Assemble(1, 1, (msg.Contribution("m0", 0, 5),)), PartArrived(bundle, "m0", 5)
    for event in (order, part, SumReachable(bundle, 0.1), order):
        one.handle(event, 0.0)
    assert one.handle(part, 0.0) == [ForgetParts(bundle)]
    assert one.bundles == 0
