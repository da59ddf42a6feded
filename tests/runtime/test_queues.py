"""What waits to go out of an interface, as the kernel tells it."""

from __future__ import annotations

import struct
import sys
from typing import Any, Self

import psutil
import pytest

from psplatform.runtime.comms import queues
from psplatform.runtime.comms.queues import waiting_at


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def told(index: int, kind: bytes, waiting: int | None) -> bytes:
    """Return how the kernel tells of one queue."""
    counted = b"" if waiting is None else attribute(3, struct.pack("=IIIII", 2, waiting, 0, 0, 0))
    statistics = attribute(0x8000 | 7, attribute(1, bytes(12)) + counted)
    content = struct.pack("=BxxxiIII", 0, index, 0, 0, 0) + attribute(1, kind + b"\0") + statistics
    return struct.pack("=IHHII", 16 + len(content), 36, 2, 0, 0) + content


END = struct.pack("=IHHII", 20, 3, 2, 0, 0) + bytes(4)


class Kernel:
    """Answers with what it is given, in as many messages."""

    said: list[bytes]

    def __init__(self, *_: Any) -> None:
        self._left = list(self.said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def settimeout(self, seconds: float) -> None:
        """Nothing is waited for."""

    def send(self, asked: bytes) -> None:
        assert len(asked) == struct.unpack_from("=I", asked)[0]

    def recv(self, most: int) -> bytes:
        if not self._left:
            raise TimeoutError
        return self._left.pop(0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([told(7, b"tbf", 3000) + END], 3000),
        ([told(6, b"tbf", 9), told(7, b"fq_codel", 0), END], 0),
        ([told(7, b"mq", 5) + told(7, b"fq_codel", 5) + told(8, b"tbf", 70), END], 10),
        ([told(7, b"noqueue", 0) + END], None),
        ([told(7, b"tbf", None) + END], None),
        ([END], None),
        ([told(7, b"tbf", 3000)[:30]], None),
        ([b"\1\0"], None),
        ([], None),
    ],
)
def test_the_queues_of_an_interface_are_added_up(
    monkeypatch: pytest.MonkeyPatch, said: list[bytes], expected: int | None
) -> None:
    """What is cut off, or never comes, tells nothing; nor does an interface that has none."""
    monkeypatch.setattr(queues.socket, "if_nametoindex", lambda name: 7)
    monkeypatch.setattr(queues.socket, "socket", type("Told", (Kernel,), {"said": said}))
    found = waiting_at("eth0")
    assert (found() if found is not None else None) == expected


def test_of_an_interface_that_is_not_there_nothing_is_told() -> None:
    assert waiting_at("no-such-one") is None


def test_every_interface_of_this_machine_is_told_of_or_not() -> None:
    for name in psutil.net_if_addrs():
        found = waiting_at(name)
        assert found is None or found() is None or (found() or 0) >= 0
