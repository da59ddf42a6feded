"""Content that cannot be read where its server shows it is read into the parameters, and nothing else is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.core.protocol.wire import decode, encode
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import Outgoing
from psplatform.runtime.dataplane.pulls.content import Answer, Content
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.dataplane.pulls.parameters import BorrowedParameters, Parameters
from psplatform.runtime.dataplane.segments import SegmentName
from psplatform.runtime.dataplane.transports import COMMS
from psplatform.tensors.layout import Layout, TensorSpec
from tests.support.two_servers import two

SIZE = 200_000
VERSION = 7


@dataclass
class Server:
    """Shows ones, is asked, and answers."""

    layout: Layout
    not_yet: int = 0
    torn: bool = False
    asked: list[bool] = field(default_factory=list)

    async def attach(self, member: str, slab: SegmentName | None) -> tuple[bool, SegmentName]:
        return False, SegmentName("/nowhere", 1)

    async def send_content(self, data: bytes, settled: bool) -> Outgoing:
        self.asked.append(settled)
        pull: Pull = decode(data)
        if len(self.asked) <= self.not_yet:
            return Outgoing(None)
        shown = [np.ones(SIZE, np.float32), np.full(3, 2, np.int64)]
        pulled = Pulled(pull.shard, pull.request, VERSION, 1)
        return Outgoing(encode(pulled), shown, lambda: settled or not self.torn)


class Kept(Parameters):
    """Has no room of its own: keeps what it is given."""

    def __init__(self) -> None:
        self.arrays: tuple[NDArray[Any], ...] = ()

    def room(self, shard: int) -> None:
        """There is none."""

    def take(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        self.arrays = answer.arrays
        return True


@pytest.fixture
def whole() -> Layout:
    specs = [TensorSpec("weight", (SIZE,), "float32", "parameter"), TensorSpec("seen", (3,), "int64", "buffer")]
    return Layout.of(specs, shards=1)


def pulled_into(
    parameters: Parameters, server: Server, expects: Callable[[Pulled], bool] = lambda pulled: True
) -> list[int]:
    """Pull once; return the versions that were delivered."""

    async def pull() -> list[int]:
        delivered: asyncio.Queue[int] = asyncio.Queue()
        async with two(server) as found:
            places = found.caller.rpc, server.layout, "w", None, {"server-0": found.peer}, parameters
            background = Background()
            fetcher = Fetcher(*places, expects, lambda pulled: delivered.put_nowait(pulled.version), COMMS, background)
            fetcher.pull(Pull("w", 0, 1, VERSION), "server-0")
            async with asyncio.timeout(60.0):
                first = await delivered.get()
            fetcher.close()
            return [first, *(delivered.get_nowait() for _ in range(delivered.qsize()))]

    return asyncio.run(pull())


def places_of(parameters: Parameters) -> Sequence[int]:
    return [vector.data_ptr() for vector in parameters.vectors.values()]


@pytest.mark.parametrize("kind", [Parameters, BorrowedParameters])
def test_it_is_read_into_the_vectors_that_are_computed_on(kind: type[Any], whole: Layout) -> None:
    parameters = kind(whole)
    server = Server(whole)
    assert pulled_into(parameters, server) == [VERSION]
    before = places_of(parameters)
    assert pulled_into(parameters, server) == [VERSION]
    assert places_of(parameters) == before
    assert parameters.vectors["parameter.float32"].tolist() == [1.0] * SIZE
    assert parameters.vectors["buffer.int64"].tolist() == [2, 2, 2]
    assert not parameters.is_lent


def test_what_was_written_over_on_its_way_is_asked_for_again_and_settled(whole: Layout) -> None:
    server = Server(whole, torn=True)
    assert pulled_into(Parameters(whole), server) == [VERSION]
    assert server.asked == [False, True]


def test_who_is_told_that_there_is_nothing_yet_asks_again(whole: Layout) -> None:
    server = Server(whole, not_yet=2)
    assert pulled_into(Parameters(whole), server) == [VERSION]
    assert server.asked == [False, False, False]


def test_content_that_is_not_expected_any_more_is_read_nowhere(whole: Layout) -> None:
    parameters = Parameters(whole)
    assert pulled_into(parameters, Server(whole), lambda pulled: False) == [VERSION]
    assert not parameters.vectors["parameter.float32"].any()


def test_what_is_not_wanted_any_more_when_it_is_there_changes_no_parameters(whole: Layout) -> None:
    """A worker that waits for some shards only computes while the others are still arriving."""
    parameters, wanted = Parameters(whole, whole=False), iter([True, False])
    assert pulled_into(parameters, Server(whole), lambda pulled: next(wanted)) == [VERSION]
    assert not parameters.vectors["parameter.float32"].any()
    assert pulled_into(parameters, Server(whole)) == [VERSION]
    assert parameters.vectors["parameter.float32"].all()


def test_parameters_without_room_are_given_arrays_of_their_own(whole: Layout) -> None:
    parameters = Kept()
    assert pulled_into(parameters, Server(whole)) == [VERSION]
    weight, seen = parameters.arrays
    assert (weight.dtype, seen.dtype) == (np.float32, np.int64)
    assert weight.tolist() == [1.0] * SIZE
    assert seen.tolist() == [2, 2, 2]
