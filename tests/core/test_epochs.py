"""Dealing an epoch: every sample is applied exactly once in it, whatever fails."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.core.coordination.epochs import Deck
from psplatform.core.protocol.messages import Ticket


def test_tickets_are_dealt_in_order_and_the_next_epoch_follows_at_once() -> None:
    deck = Deck(2)
    dealt = [deck.deal(0, sequence) for sequence in range(5)]
    assert dealt == [Ticket(0, 0), Ticket(0, 1), Ticket(1, 0), Ticket(1, 1), Ticket(2, 0)]


def test_what_comes_back_is_dealt_before_anything_new_the_earliest_first() -> None:
    deck = Deck(2)
    for sequence in range(4):
        deck.deal(0, sequence)
    deck.take_back(0, 2)
    deck.take_back(0, 1)
    assert [deck.deal(1, 1), deck.deal(1, 2), deck.deal(1, 3)] == [Ticket(0, 1), Ticket(1, 0), Ticket(2, 0)]


def test_what_a_lost_coordinator_has_dealt_is_not_dealt_again() -> None:
    """Its successor hears of it from the worker: the batch would enter two gradients."""
    deck = Deck(4)
    assert deck.deal(0, 1) == Ticket(0, 0)
    deck.claim(0, 2, Ticket(0, 1))
    deck.settle(1, 1, Ticket(0, 2))
    assert deck.deal(2, 1) == Ticket(0, 3)
    deck.take_back(0, 2)
    assert deck.deal(2, 2) == Ticket(0, 1), "what comes back is dealt all the same"


def test_a_ticket_belongs_to_the_first_gradient_that_is_heard_of() -> None:
    """The successor has dealt it again before it hears from the worker that had it from the lost coordinator."""
    deck = Deck(4)
    assert deck.deal(2, 1) == Ticket(0, 0)
    deck.deal(0, 1)
    deck.claim(0, 1, Ticket(0, 0))
    assert (deck.is_duplicate(0, 1), deck.is_duplicate(2, 1)) == (True, False)
    assert deck.deal(3, 1) == Ticket(0, 1), "what was dealt to it is dealt to another"
    deck.take_back(0, 1)
    assert not deck.is_duplicate(0, 1)
    assert deck.deal(3, 2) == Ticket(0, 2), "the batch is not dealt again because one that counts in vain was dropped"


def test_a_ticket_belongs_to_the_gradient_that_was_applied_whatever_was_heard() -> None:
    deck = Deck(4)
    assert deck.deal(2, 1) == Ticket(0, 0)
    deck.settle(0, 7, Ticket(0, 0))
    assert deck.is_duplicate(2, 1)
    deck.take_back(2, 1)
    assert deck.deal(2, 1) == Ticket(0, 1)
    assert not deck.is_duplicate(2, 1), "it is released for another batch now"


def test_a_ticket_that_has_come_back_or_is_set_aside_can_be_claimed_and_settled() -> None:
    """The successor knows that its worker is lost, or that its gradient was not finite, and hears of the next one."""
    deck = Deck(6)
    for slot in range(4):
        deck.deal(slot, 1)
    deck.take_back(0, 1)
    deck.take_back(1, 1)
    deck.refuse(2, 1, most=3)
    deck.refuse(3, 1, most=3)
    deck.claim(4, 1, Ticket(0, 0))
    deck.settle(4, 2, Ticket(0, 1))
    deck.claim(4, 3, Ticket(0, 2))
    deck.settle(4, 4, Ticket(0, 3))
    assert not any(deck.is_duplicate(4, sequence) for sequence in range(1, 5))
    deck.retry()
    assert [deck.deal(5, sequence) for sequence in (1, 2)] == [Ticket(0, 4), Ticket(0, 5)]


def test_what_a_lost_coordinator_has_dealt_ahead_is_not_dealt_after_a_recovery() -> None:
    deck = Deck(4)
    deck.settle(0, 1, Ticket(0, 1))
    deck.claim(1, 1, Ticket(0, 2))
    later = Deck(4)
    later.restore(deck.to_plain())
    assert [later.deal(0, sequence) for sequence in (1, 2, 3)] == [Ticket(0, 2), Ticket(0, 0), Ticket(0, 3)]


def test_a_settled_ticket_never_comes_back() -> None:
    deck = Deck(3)
    deck.deal(0, 1)
    deck.settle(0, 1, Ticket(0, 0))
    deck.take_back(0, 1)
    assert deck.deal(0, 2) == Ticket(0, 1)


def test_taking_back_twice_returns_one_ticket() -> None:
    deck = Deck(3)
    deck.deal(0, 1)
    deck.take_back(0, 1)
    deck.take_back(0, 1)
    assert [deck.deal(0, 2), deck.deal(0, 3)] == [Ticket(0, 0), Ticket(0, 1)]


@given(batches=st.integers(1, 6), slots=st.integers(1, 5), data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_batch_is_applied_exactly_once_per_epoch_under_any_interleaving(
    batches: int, slots: int, data: st.DataObject
) -> None:
    """Once nothing is out, the applied tickets are whole epochs and one prefix of an epoch, each batch once."""
    deck = Deck(batches)
    out: dict[int, tuple[int, Ticket]] = {}
    sequences: Counter[int] = Counter()
    applied: Counter[Ticket] = Counter()
    for action in data.draw(st.lists(st.sampled_from(["apply", "apply", "drop", "deal"]), max_size=60)):
        slot = data.draw(st.integers(0, slots - 1))
        if slot not in out:
            sequences[slot] += 1
            out[slot] = sequences[slot], deck.deal(slot, sequences[slot])
        elif action == "apply":
            sequence, ticket = out.pop(slot)
            deck.settle(slot, sequence, ticket)
            applied[ticket] += 1
        elif action == "drop":
            deck.take_back(slot, out.pop(slot)[0])
    for slot, (sequence, _) in out.items():
        deck.take_back(slot, sequence)
    # Deal until the first ticket nobody ever had: all before it are either applied or have come back by then.
    newest = max([*applied, *(ticket for _, ticket in out.values())], key=rank, default=Ticket(0, 0))
    for number in range(1000, 1000 + slots + 1):
        ticket = deck.deal(99, number)
        if rank(ticket) > rank(newest):
            break
        deck.settle(99, number, ticket)
        applied[ticket] += 1
    expected = {Ticket(epoch, number) for epoch in range(newest.epoch + 1) for number in range(batches)}
    expected = {one for one in expected if rank(one) < rank(ticket)}
    assert applied == Counter(expected)


def rank(ticket: Ticket) -> tuple[int, int]:
    return ticket.epoch, ticket.number


# --- batches whose gradient was not finite ---


def test_a_refused_ticket_is_set_aside_until_the_model_has_changed() -> None:
    deck = Deck(3)
    deck.deal(0, 1)
    assert deck.refuse(0, 1, most=3) == (Ticket(0, 0), 1)
    assert deck.deal(0, 2) == Ticket(0, 1)
    deck.retry()
    assert deck.deal(0, 3) == Ticket(0, 0)


def test_a_ticket_is_given_up_after_so_many_refusals() -> None:
    deck = Deck(2)
    for count in (1, 2):
        deck.deal(0, count)
        assert deck.refuse(0, count, most=2) == (Ticket(0, 0), count)
        deck.retry()
    assert [deck.deal(0, sequence) for sequence in (3, 4)] == [Ticket(0, 1), Ticket(1, 0)]


def test_what_is_applied_or_has_no_ticket_is_not_refused() -> None:
    deck = Deck(2)
    assert deck.refuse(0, 1, most=1) is None
    deck.deal(0, 1)
    deck.settle(0, 1, Ticket(0, 0))
    assert deck.refuse(0, 1, most=1) is None


def test_a_checkpoint_keeps_refusals_and_what_is_set_aside() -> None:
    deck = Deck(2)
    deck.deal(0, 1)
    deck.refuse(0, 1, most=3)
    later = Deck(2)
    later.restore(deck.to_plain())
    assert later.deal(0, 5) == Ticket(0, 0)
    assert later.refuse(0, 5, most=3) == (Ticket(0, 0), 2)


def test_a_checkpoint_of_before_there_were_refusals_is_read() -> None:
    plain = Deck(2).to_plain()
    del plain["refusals"]
    deck = Deck(2)
    deck.restore(plain)
    assert deck.deal(0, 1) == Ticket(0, 0)
