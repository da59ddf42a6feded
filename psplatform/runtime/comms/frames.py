"""Connections over Unix sockets between processes of one user: pickles, each after its length."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
from typing import Any, Final, cast

import cloudpickle

from psplatform.errors import ClusterError

LARGEST: Final = 1 << 20
"""Bytes of the largest message: what is larger would keep the event loop from everything else."""

_LENGTH: Final = struct.Struct("<Q")
_USUAL: Final = 1 << 14
"""Bytes that a connection has room for, as long as no larger message comes."""

_KEPT: Final = 1 << 18
"""The most that it goes on having room for once larger ones have come."""

_CREDENTIALS: Final = struct.Struct("iII")


def pickled(message: Any) -> bytes | None:
    """Return a message as a pickle, or ``None`` if it is too large; arrays are not copied to find that out.

    Raises
    ------
    Exception
        If it cannot be pickled.
    """
    arrays: list[pickle.PickleBuffer] = []
    try:
        frame = pickle.dumps(message, protocol=5, buffer_callback=arrays.append)
        if sum(one.raw().nbytes for one in arrays) + len(frame) > LARGEST:
            return None
        return pickle.dumps(message, protocol=5) if arrays else frame
    except Exception:  # noqa: BLE001  functions and classes of the user's main program
        frame = cloudpickle.dumps(message)
        return frame if len(frame) <= LARGEST else None


def unpickled(frame: bytes) -> Any:
    """Return what a process of this user has sent.

    Raises
    ------
    ClusterError
        If it cannot be read here, and why.
    """
    try:
        return pickle.loads(frame)  # noqa: S301  the same user's
    except Exception as error:
        raise ClusterError(f"what was sent cannot be read here ({type(error).__name__}: {error})") from error


class Connection(asyncio.BufferedProtocol):
    """One end of a connection.

    It reads into a buffer of its own: otherwise asyncio allocates 256 KiB for each read and frees them again, which the
    kernel maps and unmaps where the process keeps no freed memory.
    """

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = bytearray(_USUAL)
        self._filled = 0

    @property
    def is_open(self) -> bool:
        """Whether the other end is there, as far as is known."""
        return not self._transport.is_closing()

    @property
    def is_to_this_user(self) -> bool:
        """Whether the kernel says that the process at the other end is of the same user."""
        there = self._transport.get_extra_info("socket")
        credentials = there.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)  # of one that is not connected after all, it is nobody's
        return bool(user == os.geteuid())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what the connection is made of."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to put what comes next: there is always room."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what is whole."""
        buffer, filled = self._buffer, self._filled + nbytes
        begin = end = 0
        while filled >= (body := begin + _LENGTH.size):
            end = body + _LENGTH.unpack_from(buffer, begin)[0]
            if filled < end:
                break
            frame = bytes(memoryview(buffer)[body:end])
            begin = end
            self.take(frame)
        self._keep(begin, filled, end - begin)

    def _keep(self, begin: int, filled: int, size: int) -> None:
        """Keep what is not whole yet, where there is room for more: at most twice what has come."""
        buffer, self._filled = self._buffer, filled - begin
        room = len(buffer)
        if self._filled == room:
            room = min(size, 2 * room)
        elif not self._filled and room > _KEPT:
            room = _USUAL
        if room != len(buffer):
            self._buffer = bytearray(room)
        if self._buffer is not buffer or begin:
            self._buffer[: self._filled] = buffer[begin:filled]

    def take(self, frame: bytes) -> None:
        """Take what the other end has sent."""
        raise NotImplementedError

    def send(self, frame: bytes) -> None:
        """Send a pickle to the other end."""
        self._transport.write(_LENGTH.pack(len(frame)) + frame)

    def close(self) -> None:
        """Close it at once."""
        self._transport.abort()
