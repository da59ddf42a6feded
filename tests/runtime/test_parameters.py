"""What a worker computes on: the server's own memory where that holds still, and a copy where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from torch import Tensor

from psplatform.core.protocol.messages import Pulled
from psplatform.runtime.dataplane.pulls.content import Answer, Content
from psplatform.runtime.dataplane.pulls.parameters import BorrowedParameters, Parameters
from psplatform.tensors.layout import Layout, TensorSpec
from psplatform.tensors.vectors import named_views

EPOCH = 2
SPECS = [
    TensorSpec("weight", (3, 500), "float32", "parameter"),
    TensorSpec("seen", (2,), "int64", "buffer"),
]


@pytest.fixture
def layout() -> Layout:
    return Layout.of(SPECS, shards=1)


class Server:
    """A server's content, and how its worker sees it."""

    def __init__(self, layout: Layout, run: str) -> None:
        self.content = Content.create(layout, 0, run, EPOCH)
        view = Content.open(layout, 0, self.content.name, private=True)
        assert view is not None
        self.view = view
        self.version = 0

    def show(self, version: int) -> None:
        """Show another version, whose number is each of its elements."""
        self.version, copy = version, version % 2
        self.content.begin_writing(copy)
        for vector in self.content.copies[copy].values():
            vector.fill_(version)
        self.content.show(copy, version)

    def pull(self, parameters: Parameters) -> bool:
        """Let parameters take the version that is shown."""
        pulled = Pulled(0, 1, self.version, EPOCH)
        return parameters.take(pulled, self.view, Answer(b"", self.version % 2))


@pytest.fixture
def server(layout: Layout, run_id: str) -> Server:
    one = Server(layout, run_id)
    one.show(5)
    return one


def values(parameters: Parameters) -> dict[str, set[float]]:
    return {key: set(map(float, vector)) for key, vector in parameters.vectors.items()}


def weight(layout: Layout, parameters: Parameters) -> Tensor:
    return named_views(layout, parameters.vectors)["weight"]


def test_parameters_lie_where_the_server_shows_them_and_buffers_do_not(layout: Layout, server: Server) -> None:
    borrowed = BorrowedParameters(layout)
    assert server.pull(borrowed)
    shown = server.view.copies[1]
    assert borrowed.vectors["parameter.float32"] is shown["parameter.float32"]
    assert borrowed.vectors["buffer.int64"] is not shown["buffer.int64"]
    assert values(borrowed) == {"parameter.float32": {5.0}, "buffer.int64": {5.0}}
    server.show(6)
    assert values(borrowed) == {"parameter.float32": {5.0}, "buffer.int64": {5.0}}
    assert not borrowed.has_changed(), "the next version is made beside it"
    assert server.pull(borrowed)
    assert values(borrowed) == {"parameter.float32": {6.0}, "buffer.int64": {6.0}}


def test_each_of_the_two_places_has_vectors_of_its_own_that_stay(layout: Layout, server: Server) -> None:
    """Who computes makes views of them once."""
    borrowed = BorrowedParameters(layout)
    seen = []
    for version in (6, 7, 8, 9):
        server.show(version)
        assert server.pull(borrowed)
        seen.append(borrowed.vectors)
    assert seen[0] is seen[2]
    assert seen[1] is seen[3]


def test_what_is_passed_by_is_noticed_and_copied_the_next_time(layout: Layout, server: Server) -> None:
    borrowed = BorrowedParameters(layout)
    assert server.pull(borrowed)
    server.show(6)
    server.content.begin_writing(1)
    assert borrowed.has_changed()
    server.show(7)
    assert server.pull(borrowed)
    server.show(8)
    server.show(9)
    assert not borrowed.has_changed()
    assert values(borrowed) == {"parameter.float32": {7.0}, "buffer.int64": {7.0}}


def test_a_version_that_is_not_there_is_not_taken(layout: Layout, server: Server) -> None:
    borrowed = BorrowedParameters(layout)
    for wrong in (Pulled(0, 1, 4, EPOCH), Pulled(0, 1, 5, EPOCH + 1)):
        assert not borrowed.take(wrong, server.view, Answer(b"", 1))


def test_a_model_that_writes_to_its_parameters_changes_nothing_but_its_own_and_is_given_copies(
    layout: Layout, server: Server
) -> None:
    borrowed = BorrowedParameters(layout)
    assert server.pull(borrowed)
    borrowed.look_after()
    weight(layout, borrowed)[1, 7] = -1.0
    borrowed.look_after()
    assert set(map(float, server.content.copies[1]["parameter.float32"])) == {5.0}
    for version in (7, 9):
        server.show(version)
        assert server.pull(borrowed)
        assert values(borrowed)["parameter.float32"] == {float(version)}
        weight(layout, borrowed).zero_()


def test_who_only_reads_is_given_no_copies(layout: Layout, server: Server) -> None:
    borrowed = BorrowedParameters(layout)
    for version in range(6, 10):
        server.show(version)
        assert server.pull(borrowed)
        assert float(weight(layout, borrowed).sum()) == 1500.0 * version
        borrowed.look_after()
    assert borrowed.vectors["parameter.float32"] is server.view.copies[1]["parameter.float32"]


def test_what_cannot_be_read_where_it_lies_is_taken_out_of_the_answer(layout: Layout, server: Server) -> None:
    """After a server that could be, and before one that can be."""
    borrowed = BorrowedParameters(layout)
    assert server.pull(borrowed)
    arrays = np.full(1500, 3.0, np.float32), np.full(2, 3)
    assert borrowed.take(Pulled(0, 2, 6, EPOCH), None, Answer(b"", 0, arrays))
    assert values(borrowed) == {"parameter.float32": {3.0}, "buffer.int64": {3.0}}
    assert not borrowed.has_changed()
    assert server.pull(borrowed)
    assert borrowed.vectors["parameter.float32"] is server.view.copies[1]["parameter.float32"]


def test_the_buffers_are_the_same_wherever_the_parameters_lie(layout: Layout, server: Server) -> None:
    borrowed = BorrowedParameters(layout)
    buffer = borrowed.vectors["buffer.int64"]
    for content in (server.view, None, server.view):
        arrays = np.zeros(1500, np.float32), np.zeros(2, int)
        assert borrowed.take(Pulled(0, 1, 5, EPOCH), content, Answer(b"", 1, arrays))
        assert borrowed.vectors["buffer.int64"] is buffer
