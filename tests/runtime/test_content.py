"""A shard's two copies: a reader gets a whole version or none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.runtime.dataplane.pulls.content import Answer, Content, private_copy
from psplatform.runtime.dataplane.segments import Segment
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import allocate

SHARD, EPOCH = 1, 3


@pytest.fixture
def server(layout: Layout, run_id: str) -> Content:
    """Make a server's content that shows version 5, all fives, in its first copy."""
    content = Content.create(layout, SHARD, run_id, EPOCH)
    _fill(content.copies[0], 5)
    content.show(0, 5)
    return content


@pytest.fixture
def reader(layout: Layout, server: Content) -> Content:
    found = Content.open(layout, SHARD, server.name)
    assert found is not None
    return found


@pytest.fixture
def into(layout: Layout) -> dict[str, Tensor]:
    return allocate(layout, SHARD)


def _fill(vectors: Any, value: int) -> None:
    for vector in vectors.values():
        vector.fill_(value)


def _values(vectors: Any) -> set[float]:
    return {float(value) for vector in vectors.values() for value in vector}


def test_a_reader_copies_the_version_shown(reader: Content, into: dict[str, Tensor]) -> None:
    assert reader.read(0, 5, EPOCH, into)
    assert _values(into) == {5.0}


def test_a_new_content_shows_nothing(layout: Layout, run_id: str) -> None:
    """Its zeros are no version, not even version 0."""
    content = Content.create(layout, 0, run_id, 1)
    assert not content.holds(0, 0, 1)
    assert not content.holds(1, 0, 1)


def test_both_copies_are_shown_at_a_time(server: Content, reader: Content, into: dict[str, Tensor]) -> None:
    """The version before stays readable until the next one is begun."""
    _fill(server.copies[1], 6)
    server.show(1, 6)
    assert reader.read(1, 6, EPOCH, into)
    assert _values(into) == {6.0}
    assert reader.read(0, 5, EPOCH, into)
    assert _values(into) == {5.0}


def test_how_far_replicas_are_behind_is_told_with_what_is_shown(server: Content, reader: Content) -> None:
    assert reader.divergence == math.inf, "no replica is in sync"
    server.show(1, 6, 2.5)
    assert reader.divergence == 2.5
    assert reader.holds(1, 6, EPOCH)
    server.diverge(3.0)
    assert reader.divergence == 3.0


def test_another_version_than_asked_for_is_not_returned(reader: Content, into: dict[str, Tensor]) -> None:
    assert not reader.read(0, 4, EPOCH, into)
    assert not reader.read(1, 5, EPOCH, into)


def test_a_copy_that_is_being_written_is_not_returned(
    server: Content, reader: Content, into: dict[str, Tensor]
) -> None:
    server.begin_writing(0)
    assert not reader.read(0, 5, EPOCH, into)


class _Disturbed(dict[str, Tensor]):
    """Vectors to read into, with something happening at the server after the first of them is looked up."""

    def __init__(self, vectors: dict[str, Tensor], happens: Callable[[], None]) -> None:
        super().__init__(vectors)
        self._happens = happens

    def __getitem__(self, key: str) -> Tensor:
        self._happens()
        return super().__getitem__(key)


def test_a_copy_that_is_overwritten_during_the_read_is_not_returned(
    server: Content, reader: Content, into: dict[str, Tensor]
) -> None:
    """What was read then is no version at all."""
    assert not reader.read(0, 5, EPOCH, _Disturbed(into, lambda: server.begin_writing(0)))


def test_a_copy_that_became_another_version_during_the_read_is_not_returned(
    server: Content, reader: Content, into: dict[str, Tensor]
) -> None:
    """Also when the writer has finished again before the reader looks."""
    assert not reader.read(0, 5, EPOCH, _Disturbed(into, lambda: server.show(0, 7)))


def test_the_content_of_another_epoch_is_refused(reader: Content, into: dict[str, Tensor]) -> None:
    """A server that was replaced and wakes up again misleads nobody."""
    assert not reader.read(0, 5, EPOCH + 1, into)
    assert not reader.read(0, 5, EPOCH - 1, into)


def test_a_segment_that_cannot_be_seen_gives_no_content(layout: Layout, server: Content) -> None:
    name = server.name
    server.remove()
    assert Content.open(layout, SHARD, name) is None


def test_a_private_copy_stays_as_it_was(server: Content) -> None:
    """What is being sent does not change under the sender."""
    copied = private_copy(server.copies[0])
    _fill(server.copies[0], 6)
    assert _values(copied) == {5.0}


def test_whoever_reads_sees_that_its_server_was_swept(server: Content, reader: Content) -> None:
    assert not reader.is_swept
    server.remove()
    assert reader.is_swept


# --- who sees what is shown need not ask for it ---

PULL = Pull("w", SHARD, 8, 5, EPOCH)
"""Of a worker, for version 5 or newer."""

ANSWER = Pulled(SHARD, 8, 5, EPOCH, 2), Answer(b"", 0)


def test_a_pull_is_answered_as_its_server_would(server: Content, reader: Content) -> None:
    server.answer_until(10.0, decided_in=2)
    assert reader.answer(PULL, 10.0) == ANSWER
    _fill(server.copies[1], 6)
    server.begin_writing(1)
    assert reader.answer(PULL, 10.0) == ANSWER
    server.show(1, 6)
    assert reader.answer(PULL, 10.0) == (replace(ANSWER[0], version=6), Answer(b"", 1))


def test_a_server_whose_lease_is_over_is_asked(server: Content, reader: Content) -> None:
    server.answer_until(10.0, decided_in=2)
    assert reader.answer(PULL, 10.1) is None
    server.answer_until(20.0, decided_in=2)
    assert reader.answer(PULL, 10.1) == ANSWER


def test_a_copy_that_does_not_serve_is_asked(server: Content, reader: Content) -> None:
    """A replica for instance, however new what it holds is."""
    assert reader.answer(PULL, 0.0) is None
    server.answer_until(10.0, decided_in=2)
    server.answer_until(-math.inf, decided_in=2)
    assert reader.answer(PULL, 0.0) is None


@pytest.mark.parametrize("wanted", [{"version": 6}, {"epoch": EPOCH + 1}])
def test_what_is_not_shown_yet_is_asked_for(server: Content, reader: Content, wanted: dict[str, int]) -> None:
    server.answer_until(10.0, decided_in=2)
    assert reader.answer(replace(PULL, **wanted), 0.0) is None


def test_a_server_that_has_given_up_its_content_is_asked(server: Content, reader: Content) -> None:
    """It ends; whoever reads has it mapped still."""
    server.answer_until(math.inf, decided_in=2)
    server.remove()
    assert reader.answer(PULL, 0.0) is None


def test_a_server_that_was_killed_is_asked(server: Content, reader: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lease goes on, but another may have been promoted at once."""
    server.answer_until(math.inf, decided_in=2)
    monkeypatch.setattr(Segment, "owner_is_dying", property(lambda segment: True))
    assert reader.answer(PULL, 0.0) is None
