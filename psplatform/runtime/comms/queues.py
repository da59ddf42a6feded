"""How much waits to go out of a network interface, as Linux tells anybody who asks.

Whoever sends more than an interface lets pass fills the queue before it (its queueing discipline); one that is as fast
as what is sent has an empty queue.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

_HEAD: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_QUEUE: Final = struct.Struct("=BxxxiIII")  # family, interface, handle, parent, info
_ATTRIBUTE: Final = struct.Struct("=HH")  # length, type
_COUNTED: Final = struct.Struct("=II")  # packets and bytes that wait

_ASKED: Final = _HEAD.size + _QUEUE.size
_ASK: Final = 38  # RTM_GETQDISC
_TOLD: Final = 36  # RTM_NEWQDISC
_ALL: Final = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_KIND, _STATISTICS, _OF_QUEUE = 1, 7, 3  # TCA_KIND, TCA_STATS2, TCA_STATS_QUEUE
_TYPE: Final = 0x3FFF  # without flags

_NONE: Final = b"noqueue"
_MOST_BYTES: Final = 1 << 16
_LIMIT_S: Final = 0.05


def waiting_at(name: str) -> Callable[[], int | None] | None:
    """Return what tells how many bytes wait to go out of an interface; ``None`` where that cannot be told.

    It returns ``None`` where the interface has no queue any more, or the kernel does not answer.
    """
    if sys.platform != "linux":
        return None
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        return None

    def tell() -> int | None:
        waiting: list[int] = []
        try:
            for answer in _answers(_HEAD.pack(_ASKED, _ASK, _ALL, 0, 0) + _QUEUE.pack(0, index, 0, 0, 0)):
                if _QUEUE.unpack_from(answer)[1] == index:
                    waiting += _waiting_in(answer[_QUEUE.size :])
        except (OSError, struct.error):
            return None  # not all of it was told
        return sum(waiting) if waiting else None

    return tell if tell() is not None else None


def _answers(asked: bytes) -> Iterator[bytes]:
    """Yield what the kernel says of each queue; raise `OSError` if it has not said all in time."""
    give_up_at = time.monotonic() + _LIMIT_S
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(_LIMIT_S)
        kernel.send(asked)
        while time.monotonic() < give_up_at:
            said = kernel.recv(_MOST_BYTES)
            while said:
                length, kind, *_ = _HEAD.unpack_from(said)
                if kind != _TOLD:
                    return  # that was all
                yield said[_HEAD.size : length]
                said = said[max(_HEAD.size, _padded(length)) :]
    raise TimeoutError


def _waiting_in(attributes: bytes) -> list[int]:
    """Return the bytes that wait in a queue; nothing where it is none."""
    found = dict(_split(attributes))
    counted = dict(_split(found.get(_STATISTICS, b""))).get(_OF_QUEUE)
    if counted is None or found.get(_KIND, b"").rstrip(b"\0") == _NONE:
        return []
    return [int(_COUNTED.unpack_from(counted)[1])]


def _split(attributes: bytes) -> Iterator[tuple[int, bytes]]:
    while attributes:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        yield kind & _TYPE, attributes[_ATTRIBUTE.size : length]
        attributes = attributes[max(_ATTRIBUTE.size, _padded(length)) :]


def _padded(length: int) -> int:
    return length + 3 & ~3
