"""How a server finds the gradients that a commit names."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from psplatform.core.protocol.messages import Bundle, Contribution
from psplatform.jobs.optimizers import SGD
from psplatform.runtime.dataplane.gradients.gradient_buffers import GradientBuffers, Slab
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.tensors.layout import Layout
from psplatform.tensors.shard import Shard
from psplatform.tensors.vectors import allocate, shard_vectors

SHARD = 1


@pytest.fixture
def gradient_buffers(layout: Layout) -> GradientBuffers:
    return GradientBuffers(layout, SHARD)


def _pieces(layout: Layout, value: int) -> dict[str, torch.Tensor]:
    """Return this shard's pieces of a gradient, all of one value."""
    slab = Slab.create(layout, "none", shared=False)
    for vector in slab.vectors.values():
        vector.fill_(value)
    return shard_vectors(layout, SHARD, slab.vectors)


def _found(gradient_buffers: GradientBuffers, member: str, sequence: int) -> float | None:
    vectors = gradient_buffers.find(member, sequence)
    return None if vectors is None else float(vectors["parameter.float32"][0])


def test_a_shared_gradient_is_read_where_it_lies(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    """The server maps the worker's slab once and sees each gradient in it, its own piece only."""
    slab = Slab.create(layout, run_id, shared=True)
    assert gradient_buffers.attach("worker-1", slab.name)
    slab.vectors["parameter.float32"].copy_(_counting(layout))
    assert gradient_buffers.find("worker-1", 1) is None, "it is not whole yet"
    slab.hold(1)
    piece = layout.piece(SHARD, "parameter.float32")
    vectors = gradient_buffers.find("worker-1", 1)
    assert vectors is not None
    assert vectors["parameter.float32"].tolist() == list(range(piece.start, piece.stop))


def _counting(layout: Layout) -> Any:
    import torch

    return torch.arange(layout.region("parameter.float32").size, dtype=torch.float32)


def test_a_private_slab_has_no_name(layout: Layout, run_id: str) -> None:
    """So no server looks for it."""
    assert Slab.create(layout, run_id, shared=False).name is None


@pytest.mark.parametrize("name", [None, SegmentName("/nowhere/psplatform-x", 1)], ids=["private", "other host"])
def test_a_slab_out_of_sight_is_not_attached(gradient_buffers: GradientBuffers, name: SegmentName | None) -> None:
    """Its worker then pushes."""
    assert not gradient_buffers.attach("worker-1", name)
    assert gradient_buffers.find("worker-1", 1) is None


def test_a_pushed_gradient_is_found_by_its_number(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    gradient_buffers.keep("worker-1", 1, _pieces(layout, 10))
    gradient_buffers.keep("worker-2", 1, _pieces(layout, 20))
    assert _found(gradient_buffers, "worker-1", 1) == 10
    assert _found(gradient_buffers, "worker-2", 1) == 20
    assert _found(gradient_buffers, "worker-1", 2) is None


def test_what_is_pushed_again_while_it_is_read_disturbs_nobody(
    layout: Layout, gradient_buffers: GradientBuffers
) -> None:
    """Workers push again whenever their server is replaced; who was a replica may have it already."""
    gradient_buffers.keep("worker-1", 1, _pieces(layout, 10))

    class Summing:
        """Stands for a shard, in the midst of whose sums a push arrives."""

        def gather(self, contributions: Any, **how: Any) -> None:
            gradient_buffers.keep("worker-1", 1, _pieces(layout, 10))

    contributions = (Contribution("worker-1", 0, 1),)
    assert gradient_buffers.gather(Summing(), contributions, careful=True)  # type: ignore[arg-type]


def test_pushed_gradients_are_kept_two_deep(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    """The one being committed and the one that may follow; memory does not grow with the run."""
    for sequence in (1, 2, 3):
        gradient_buffers.keep("worker-1", sequence, _pieces(layout, sequence))
    assert [_found(gradient_buffers, "worker-1", sequence) for sequence in (1, 2, 3)] == [None, 2, 3]


def test_a_push_that_is_repeated_counts_once(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    for sequence in (1, 2, 2, 2):
        gradient_buffers.keep("worker-1", sequence, _pieces(layout, sequence))
    assert [_found(gradient_buffers, "worker-1", sequence) for sequence in (1, 2)] == [1, 2]


def test_what_a_dismissed_worker_exposed_is_kept_until_its_last_commit_is_visible(
    layout: Layout, gradient_buffers: GradientBuffers
) -> None:
    """What it announced before it was lost may be part of commits up to that position."""
    gradient_buffers.keep("worker-1", 8, _pieces(layout, 8))
    gradient_buffers.dismiss("worker-1", 4)
    gradient_buffers.release(3)
    assert _found(gradient_buffers, "worker-1", 8) == 8
    gradient_buffers.release(4)
    assert _found(gradient_buffers, "worker-1", 8) is None


def test_a_dismissed_workers_slab_is_let_go_of_as_well(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    slab = Slab.create(layout, run_id, shared=True)
    gradient_buffers.attach("worker-1", slab.name)
    gradient_buffers.dismiss("worker-1", 4)
    gradient_buffers.release(5)
    assert gradient_buffers.find("worker-1", 9) is None


def test_what_a_coordinator_had_dropped_is_kept_for_another_that_has_not_dismissed_its_worker(
    layout: Layout, gradient_buffers: GradientBuffers
) -> None:
    gradient_buffers.keep("worker-1", 8, _pieces(layout, 8))
    gradient_buffers.dismiss("worker-1", 4, term=1)
    gradient_buffers.release(4, term=2)
    assert _found(gradient_buffers, "worker-1", 8) == 8
    gradient_buffers.dismiss("worker-1", 4, term=2)
    gradient_buffers.release(5, term=2)
    assert _found(gradient_buffers, "worker-1", 8) is None


def test_a_slab_is_seen_again_once_a_coordinator_is_heard_of_that_has_not_dismissed_its_worker(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    """The worker goes on as if it were attached; what the coordinator before says late changes nothing."""
    slab, gone = Slab.create(layout, run_id, shared=True), Slab.create(layout, run_id, shared=True)
    for member, one in (("worker-1", slab), ("worker-2", gone)):
        gradient_buffers.attach(member, one.name)
        gradient_buffers.dismiss(member, 4, term=1)
    gradient_buffers.release(4, term=1)
    slab.hold(9)
    assert gradient_buffers.find("worker-1", 9) is None
    gone.remove()
    gradient_buffers.heed(2)
    gradient_buffers.dismiss("worker-1", 4, term=1)
    gradient_buffers.release(5, term=2)
    assert gradient_buffers.find("worker-1", 9) is not None
    assert gradient_buffers.slabs.keys() == {"worker-1"}


def test_no_more_slabs_are_kept_in_mind_than_a_coordinator_can_have_dismissed_in_vain(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    slabs = {f"worker-{number}": Slab.create(layout, run_id, shared=True) for number in range(70)}
    for member, slab in slabs.items():
        gradient_buffers.attach(member, slab.name)
        gradient_buffers.dismiss(member, 4, term=1)
    gradient_buffers.release(4, term=1)
    gradient_buffers.heed(2)
    assert list(gradient_buffers.slabs) == list(slabs)[-64:]


def test_others_are_not_let_go_of_with_it(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    gradient_buffers.keep("worker-1", 1, _pieces(layout, 1))
    gradient_buffers.keep("worker-2", 1, _pieces(layout, 2))
    gradient_buffers.dismiss("worker-1", 4)
    gradient_buffers.release(9)
    assert _found(gradient_buffers, "worker-2", 1) == 2


def test_whether_all_gradients_of_a_commit_are_to_be_had(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    first, second = Contribution("worker-1", 0, 1), Contribution("worker-2", 1, 4)
    gradient_buffers.keep("worker-1", 1, _pieces(layout, 1))
    assert gradient_buffers.has_all([], careful=False)
    assert gradient_buffers.has_all([first], careful=False)
    assert not gradient_buffers.has_all([first, second], careful=False)
    gradient_buffers.keep("worker-2", 4, _pieces(layout, 1))
    assert gradient_buffers.has_all([first, second], careful=True)


def test_a_copy_beside_the_slab_is_enough_for_who_reads_with_care(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    slab = Slab.create(layout, run_id, shared=True, with_copy=True)
    assert gradient_buffers.attach("worker-1", slab.name)
    slab.hold(1)
    slab.keep_copy(1)
    slab.begin()
    one = Contribution("worker-1", 0, 1)
    assert not gradient_buffers.has_all([one], careful=False)
    assert gradient_buffers.has_all([one], careful=True)


def test_what_is_written_over_while_it_is_read_with_care_is_refused(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    """Half of it may be of the worker's next gradient."""
    slab = Slab.create(layout, run_id, shared=True)
    assert gradient_buffers.attach("worker-1", slab.name)
    slab.hold(1)

    class Summing:
        """Stands for a shard, in the midst of whose sums a worker goes on."""

        def gather(self, contributions: Any, **how: Any) -> None:
            slab.begin()

    contributions = (Contribution("worker-1", 0, 1),)
    assert not gradient_buffers.gather(Summing(), contributions, careful=True)  # type: ignore[arg-type]


def test_a_copy_of_what_was_written_over_meanwhile_is_none(
    layout: Layout, gradient_buffers: GradientBuffers, run_id: str
) -> None:
    slab = Slab.create(layout, run_id, shared=True, with_copy=True)
    slab.hold(2)
    slab.keep_copy(1)
    assert slab.find(1, late=True) is None


# --- sums ---

BUNDLE = Bundle("worker-3", 1, 4)


def _summed(*members: str, sequence: int = 5, bundle: Bundle = BUNDLE) -> tuple[Contribution, ...]:
    return tuple(Contribution(member, slot, sequence, None, bundle) for slot, member in enumerate(members))


@pytest.fixture
def with_sum(layout: Layout, gradient_buffers: GradientBuffers) -> GradientBuffers:
    """Keep the sum of a gradient of worker-1 and one of worker-2."""
    gradient_buffers.keep_sum(BUNDLE, _summed("worker-1", "worker-2"), _pieces(layout, 9))
    return gradient_buffers


def test_what_was_summed_is_found_by_its_bundle_and_not_by_its_workers(with_sum: GradientBuffers) -> None:
    for one in _summed("worker-1", "worker-2"):
        found = with_sum.find_source(one)
        assert found is not None
        assert float(found["parameter.float32"][0]) == 9
    assert with_sum.find("worker-1", 5) is None
    assert with_sum.find_source(Contribution("worker-1", 0, 5)) is None
    (other,) = _summed("worker-1", bundle=Bundle("worker-3", 2, 4))
    assert with_sum.find_source(other) is None


@pytest.mark.parametrize("newer", ["alone", "in a sum"])
def test_a_sum_is_kept_until_something_newer_comes_of_one_of_its_workers(
    layout: Layout, with_sum: GradientBuffers, newer: str
) -> None:
    (one, _) = _summed("worker-1", "worker-2")
    for sequence, is_there in ((5, True), (6, False)):
        if newer == "alone":
            with_sum.keep("worker-2", sequence, _pieces(layout, 1))
        else:
            bundle = Bundle("worker-1", 1, sequence)
            gradients = _summed("worker-2", sequence=sequence, bundle=bundle)
            with_sum.keep_sum(bundle, gradients, _pieces(layout, 1))
        assert (with_sum.find_source(one) is not None) is is_there


def test_gradients_of_others_leave_a_sum_alone(layout: Layout, with_sum: GradientBuffers) -> None:
    with_sum.keep("worker-3", 99, _pieces(layout, 1))
    assert with_sum.has_all(_summed("worker-1", "worker-2"), careful=False)


def test_a_sum_that_is_sent_again_disturbs_nobody_who_reads_it(layout: Layout, with_sum: GradientBuffers) -> None:
    (one, _) = gradients = _summed("worker-1", "worker-2")
    before = with_sum.find_source(one)
    with_sum.keep_sum(BUNDLE, gradients, _pieces(layout, 9))
    assert with_sum.find_source(one) is before


@pytest.mark.parametrize("member", ["worker-1", "worker-3"], ids=["in it", "who summed it"])
def test_a_sum_goes_with_a_worker_that_was_dismissed_once_no_commit_refers_to_it(
    with_sum: GradientBuffers, member: str
) -> None:
    with_sum.dismiss(member, 3)
    with_sum.release(2)
    assert with_sum.has_all(_summed("worker-1", "worker-2"), careful=False)
    with_sum.release(3)
    assert not with_sum.has_all(_summed("worker-1", "worker-2"), careful=False)


def test_a_sum_may_come_as_long_as_the_worker_that_makes_it_is_there(gradient_buffers: GradientBuffers) -> None:
    (one,) = _summed("worker-1")
    gradient_buffers.dismiss("worker-1", 3)
    assert gradient_buffers.may_come(one), "its part may have been there before"
    gradient_buffers.dismiss("worker-3", 3)
    assert not gradient_buffers.may_come(one)


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize(("updates", "wanted"), [(1, (9 + 3) / 3), (3, 9 + 3)], ids=["mean", "one update each"])
def test_a_sum_counts_as_often_as_it_has_gradients(
    layout: Layout, with_sum: GradientBuffers, careful: bool, updates: int, wanted: float
) -> None:
    with_sum.keep("worker-4", 1, _pieces(layout, 3))
    start = shard_vectors(layout, SHARD, allocate(layout))
    shard = Shard(layout, SHARD, SGD(lr=1.0), start, (allocate(layout, SHARD), allocate(layout, SHARD)))
    contributions = (*_summed("worker-1", "worker-2"), Contribution("worker-4", 3, 1))
    assert with_sum.gather(shard, contributions, careful=careful, updates=updates)
    shard.stage(1.0)
    shard.publish(1)
    assert shard.front["parameter.float32"].unique().tolist() == [-wanted]


def test_nothing_is_gathered_without_the_sum(layout: Layout, gradient_buffers: GradientBuffers) -> None:
    start = shard_vectors(layout, SHARD, allocate(layout))
    shard = Shard(layout, SHARD, SGD(lr=1.0), start, (allocate(layout, SHARD), allocate(layout, SHARD)))
    assert not gradient_buffers.gather(shard, _summed("worker-1"), careful=False)
