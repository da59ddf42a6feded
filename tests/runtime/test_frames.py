"""Connections: messages come out whole and in order, however they were cut on their way, and need no lasting memory."""

from __future__ import annotations

import random
import struct

import pytest

from psplatform.runtime.comms.frames import LARGEST, Connection


class Noting(Connection):
    """A connection that notes what it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []

    def take(self, frame: bytes) -> None:
        self.taken.append(frame)

    def arrive(self, data: bytes) -> None:
        """Let that arrive, in as many pieces as there is room for."""
        while data:
            place = self.get_buffer(-1)
            count = min(len(place), len(data))
            assert count > 0, "a connection without room would be closed"
            place[:count], data = data[:count], data[count:]
            self.buffer_updated(count)

    @property
    def room(self) -> int:
        return len(self.get_buffer(-1))


def packed(*frames: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(frame)) + frame for frame in frames)


def frames_of(*sizes: int) -> list[bytes]:
    return [bytes([number % 251]) * size for number, size in enumerate(sizes, 1)]


@pytest.mark.parametrize("seed", range(20))
def test_messages_come_out_whole_and_in_order_however_they_are_cut(seed: int) -> None:
    drawn = random.Random(seed)
    frames = frames_of(*(drawn.choice([0, 1, 7, 200, 16_376, 16_377, 20_000, 70_000]) for _ in range(30)))
    data, connection = packed(*frames), Noting()
    while data:
        count = drawn.choice([1, 7, 8, 9, 500, 40_000])
        connection.arrive(data[:count])
        data = data[count:]
    assert connection.taken == frames


def test_memory_for_the_largest_message_is_given_back() -> None:
    connection = Noting()
    usual = connection.room
    largest = frames_of(LARGEST)
    connection.arrive(packed(*largest)[:-1])
    assert connection.taken == []
    assert connection.room == 1, "there is room for it, and for nothing else"
    connection.arrive(packed(*largest)[-1:])
    assert connection.taken == largest
    assert connection.room == usual


def test_room_for_large_messages_is_kept_where_they_come() -> None:
    connection, large = Noting(), frames_of(200_000, 200_000)
    connection.arrive(packed(large[0]))
    room = connection.room
    assert room == 200_008
    connection.arrive(packed(b"small", large[1]))
    assert connection.taken == [large[0], b"small", large[1]]
    assert connection.room == room


def test_no_more_memory_is_taken_than_twice_what_has_come() -> None:
    """Whatever size a message says that it has."""
    connection = Noting()
    connection.arrive(struct.pack("<Q", 1 << 60) + bytes(100_000))
    assert connection.room <= 2 * 100_008
    assert connection.taken == []


def test_what_is_taken_stays_as_it_is_when_more_comes() -> None:
    connection = Noting()
    connection.arrive(packed(b"first"))
    connection.arrive(packed(b"other"))
    assert connection.taken == [b"first", b"other"]
