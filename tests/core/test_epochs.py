"""Dealing an epoch: every sample is applied exactly once in it, whatever fails."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.core.coordination.order.epochs import BatchScheduler
from psplatform.core.protocol.messages import BatchAssignment


def test_tickets_are_dealt_in_order_and_the_next_epoch_follows_at_once() -> None:
    batch_scheduler = BatchScheduler(2)
    dealt = [batch_scheduler.deal(0, sequence) for sequence in range(5)]
    assert dealt == [
        BatchAssignment(0, 0),
        BatchAssignment(0, 1),
        BatchAssignment(1, 0),
        BatchAssignment(1, 1),
        BatchAssignment(2, 0),
    ]


def test_what_comes_back_is_dealt_before_anything_new_the_earliest_first() -> None:
    batch_scheduler = BatchScheduler(2)
    for sequence in range(4):
        batch_scheduler.deal(0, sequence)
    batch_scheduler.take_back(0, 2)
    batch_scheduler.take_back(0, 1)
    assert [batch_scheduler.deal(1, 1), batch_scheduler.deal(1, 2), batch_scheduler.deal(1, 3)] == [
        BatchAssignment(0, 1),
        BatchAssignment(1, 0),
        BatchAssignment(2, 0),
    ]


def test_what_a_lost_coordinator_has_dealt_is_not_dealt_again() -> None:
    """Its successor hears of it from the worker: the batch would enter two gradients."""
    batch_scheduler = BatchScheduler(4)
    assert batch_scheduler.deal(0, 1) == BatchAssignment(0, 0)
    batch_scheduler.claim(0, 2, BatchAssignment(0, 1))
    batch_scheduler.settle(1, 1, BatchAssignment(0, 2))
    assert batch_scheduler.deal(2, 1) == BatchAssignment(0, 3)
    batch_scheduler.take_back(0, 2)
    assert batch_scheduler.deal(2, 2) == BatchAssignment(0, 1), "what comes back is dealt all the same"


def test_a_ticket_belongs_to_the_first_gradient_that_is_heard_of() -> None:
    """The successor has dealt it again before it hears from the worker that had it from the lost coordinator."""
    batch_scheduler = BatchScheduler(4)
    assert batch_scheduler.deal(2, 1) == BatchAssignment(0, 0)
    batch_scheduler.deal(0, 1)
    batch_scheduler.claim(0, 1, BatchAssignment(0, 0))
    assert (batch_scheduler.is_duplicate(0, 1), batch_scheduler.is_duplicate(2, 1)) == (True, False)
    assert batch_scheduler.deal(3, 1) == BatchAssignment(0, 1), "what was dealt to it is dealt to another"
    batch_scheduler.take_back(0, 1)
    assert not batch_scheduler.is_duplicate(0, 1)
    assert batch_scheduler.deal(3, 2) == BatchAssignment(0, 2), (
        "the batch is not dealt again because one that counts in vain was dropped"
    )


def test_a_ticket_belongs_to_the_gradient_that_was_applied_whatever_was_heard() -> None:
    batch_scheduler = BatchScheduler(4)
    assert batch_scheduler.deal(2, 1) == BatchAssignment(0, 0)
    batch_scheduler.settle(0, 7, BatchAssignment(0, 0))
    assert batch_scheduler.is_duplicate(2, 1)
    batch_scheduler.take_back(2, 1)
    assert batch_scheduler.deal(2, 1) == BatchAssignment(0, 1)
    assert not batch_scheduler.is_duplicate(2, 1), "it is released for another batch now"


def test_a_ticket_that_has_come_back_or_is_set_aside_can_be_claimed_and_settled() -> None:
    """The successor knows that its worker is lost, or that its gradient was not finite, and hears of the next one."""
    batch_scheduler = BatchScheduler(6)
    for slot in range(4):
        batch_scheduler.deal(slot, 1)
    batch_scheduler.take_back(0, 1)
    batch_scheduler.take_back(1, 1)
    batch_scheduler.refuse(2, 1, most=3)
    batch_scheduler.refuse(3, 1, most=3)
    batch_scheduler.claim(4, 1, BatchAssignment(0, 0))
    batch_scheduler.settle(4, 2, BatchAssignment(0, 1))
    batch_scheduler.claim(4, 3, BatchAssignment(0, 2))
    batch_scheduler.settle(4, 4, BatchAssignment(0, 3))
    assert not any(batch_scheduler.is_duplicate(4, sequence) for sequence in range(1, 5))
    batch_scheduler.retry()
    assert [batch_scheduler.deal(5, sequence) for sequence in (1, 2)] == [BatchAssignment(0, 4), BatchAssignment(0, 5)]


def test_what_a_lost_coordinator_has_dealt_ahead_is_not_dealt_after_a_recovery() -> None:
    batch_scheduler = BatchScheduler(4)
    batch_scheduler.settle(0, 1, BatchAssignment(0, 1))
    batch_scheduler.claim(1, 1, BatchAssignment(0, 2))
    later = BatchScheduler(4)
    later.restore(batch_scheduler.to_plain())
    assert [later.deal(0, sequence) for sequence in (1, 2, 3)] == [
        BatchAssignment(0, 2),
        BatchAssignment(0, 0),
        BatchAssignment(0, 3),
    ]


def test_a_settled_ticket_never_comes_back() -> None:
    batch_scheduler = BatchScheduler(3)
    batch_scheduler.deal(0, 1)
    batch_scheduler.settle(0, 1, BatchAssignment(0, 0))
    batch_scheduler.take_back(0, 1)
    assert batch_scheduler.deal(0, 2) == BatchAssignment(0, 1)


def test_taking_back_twice_returns_one_ticket() -> None:
    batch_scheduler = BatchScheduler(3)
    batch_scheduler.deal(0, 1)
    batch_scheduler.take_back(0, 1)
    batch_scheduler.take_back(0, 1)
    assert [batch_scheduler.deal(0, 2), batch_scheduler.deal(0, 3)] == [BatchAssignment(0, 0), BatchAssignment(0, 1)]


@given(batches=st.integers(1, 6), slots=st.integers(1, 5), data=st.data())
@settings(max_examples=150)
def test_every_batch_is_applied_exactly_once_per_epoch_under_any_interleaving(
    batches: int, slots: int, data: st.DataObject
) -> None:
    """Once nothing is out, the applied batches are whole epochs and one prefix of an epoch, each batch once."""
    batch_scheduler = BatchScheduler(batches)
    out: dict[int, tuple[int, BatchAssignment]] = {}
    sequences: Counter[int] = Counter()
    applied: Counter[BatchAssignment] = Counter()
    for action in data.draw(st.lists(st.sampled_from(["apply", "apply", "drop", "deal"]), max_size=60)):
        slot = data.draw(st.integers(0, slots - 1))
        if slot not in out:
            sequences[slot] += 1
            out[slot] = sequences[slot], batch_scheduler.deal(slot, sequences[slot])
        elif action == "apply":
            sequence, assignment = out.pop(slot)
            batch_scheduler.settle(slot, sequence, assignment)
            applied[assignment] += 1
        elif action == "drop":
            batch_scheduler.take_back(slot, out.pop(slot)[0])
    for slot, (sequence, _) in out.items():
        batch_scheduler.take_back(slot, sequence)
    # Deal until the first batch assignment nobody ever had: all before it are either applied or have come back by then.
    newest = max([*applied, *(assignment for _, assignment in out.values())], key=rank, default=BatchAssignment(0, 0))
    for number in range(1000, 1000 + slots + 1):
        assignment = batch_scheduler.deal(99, number)
        if rank(assignment) > rank(newest):
            break
        batch_scheduler.settle(99, number, assignment)
        applied[assignment] += 1
    expected = {BatchAssignment(epoch, number) for epoch in range(newest.epoch + 1) for number in range(batches)}
    expected = {one for one in expected if rank(one) < rank(assignment)}
    assert applied == Counter(expected)


def rank(assignment: BatchAssignment) -> tuple[int, int]:
    return assignment.epoch, assignment.number


# --- batches whose gradient was not finite ---


def test_a_refused_ticket_is_set_aside_until_the_model_has_changed() -> None:
    batch_scheduler = BatchScheduler(3)
    batch_scheduler.deal(0, 1)
    assert batch_scheduler.refuse(0, 1, most=3) == (BatchAssignment(0, 0), 1)
    assert batch_scheduler.deal(0, 2) == BatchAssignment(0, 1)
    batch_scheduler.retry()
    assert batch_scheduler.deal(0, 3) == BatchAssignment(0, 0)


def test_a_ticket_is_given_up_after_so_many_refusals() -> None:
    batch_scheduler = BatchScheduler(2)
    for count in (1, 2):
        batch_scheduler.deal(0, count)
        assert batch_scheduler.refuse(0, count, most=2) == (BatchAssignment(0, 0), count)
        batch_scheduler.retry()
    assert [batch_scheduler.deal(0, sequence) for sequence in (3, 4)] == [BatchAssignment(0, 1), BatchAssignment(1, 0)]


def test_what_is_applied_or_has_no_ticket_is_not_refused() -> None:
    batch_scheduler = BatchScheduler(2)
    assert batch_scheduler.refuse(0, 1, most=1) is None
    batch_scheduler.deal(0, 1)
    batch_scheduler.settle(0, 1, BatchAssignment(0, 0))
    assert batch_scheduler.refuse(0, 1, most=1) is None


def test_a_checkpoint_keeps_refusals_and_what_is_set_aside() -> None:
    batch_scheduler = BatchScheduler(2)
    batch_scheduler.deal(0, 1)
    batch_scheduler.refuse(0, 1, most=3)
    later = BatchScheduler(2)
    later.restore(batch_scheduler.to_plain())
    assert later.deal(0, 5) == BatchAssignment(0, 0)
    assert later.refuse(0, 5, most=3) == (BatchAssignment(0, 0), 2)


def test_a_checkpoint_of_before_there_were_refusals_is_read() -> None:
    plain = BatchScheduler(2).to_plain()
    del plain["refusals"]
    batch_scheduler = BatchScheduler(2)
    batch_scheduler.restore(plain)
    assert batch_scheduler.deal(0, 1) == BatchAssignment(0, 0)
