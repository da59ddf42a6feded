"""Large arrays between processes that share no memory, from where they lie to where they are wanted.

A message of Dask's carries arrays as well, but its receiver makes memory for each, in pieces, and more to put these
together.  Here a message says what is called and how much follows; the bytes follow on the same connection of Dask's,
encrypted or not, and are read into memory that is there already, or into one piece.

Whoever is called must have said `take_part`.  Connections that are no streams of bytes (UCX, websockets) are not used:
`is_streamed` says where callers are to make an ordinary call.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import dask
import numpy as np
from distributed import Worker
from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import to_serialize
from numpy.typing import NDArray
from tornado.iostream import IOStream

from psplatform.runtime.comms.calls import ERROR, GONE, OK, Connect, Peer, PeerLost, gone, losses_of
from psplatform.runtime.comms.calls import call as ordinary_call
from psplatform.runtime.timeouts import TIMEOUTS

LARGE_BYTES: Final = 1 << 20
"""Bytes from which on it is worth it."""

_BACKEND: Final = "distributed.comm.tcp.backend"
_TORNADO: Final = "tornado"

_CALL: Final = "psplatform-call"
_FETCH: Final = "psplatform-fetch"
_MOST_BYTES: Final = 1 << 30
"""That are read or written at once: some systems cannot do with more than an int says."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer with arrays, which are sent from where they lie.

    Attributes
    ----------
    answer
        What the caller is told first.
    arrays
        What follows, contiguous.
    holds
        Asked once all of it is sent: whether nothing of it was written over meanwhile.
    """

    answer: Any
    arrays: Sequence[NDArray[Any]] = ()
    holds: Callable[[], bool] = lambda: True


def take_part(worker: Worker) -> None:
    """Let the actors of a Dask worker's process be called in this way; once is enough."""

    async def call(comm: Any, **what: Any) -> dict[str, Any]:
        return await _be_called(worker, comm, **what)

    async def fetch(comm: Any, **what: Any) -> dict[str, Any]:
        return await _be_asked(worker, comm, **what)

    worker.handlers.setdefault(_CALL, call)
    worker.handlers.setdefault(_FETCH, fetch)


def is_streamed(connect: Connect, peer: Peer) -> bool:
    """Whether the way to a peer is a stream of bytes."""
    streams = peer.address.startswith(("tcp://", "tls://"))
    return streams and _pool_of(connect, peer) is not None and dask.config.get(_BACKEND, _TORNADO) == _TORNADO


def _pool_of(connect: Connect, peer: Peer) -> Any:
    return getattr(connect(peer.address), "pool", None)


async def call_with_arrays(connect: Connect, peer: Peer, method: str, *arguments: Any, deadline_s: float) -> Any:
    """Do what `psplatform.runtime.comms.calls.call` does, with large arrays in the arguments beside the message.

    They must not change before this has returned or raised.
    """
    arrays: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(arguments, protocol=5, buffer_callback=arrays.append)
    views = [one.raw() for one in arrays]
    if sum(map(len, views)) < LARGE_BYTES or not is_streamed(connect, peer):
        return await ordinary_call(connect, peer, method, *arguments, deadline_s=deadline_s)
    what = {"actor": peer.key, "function": method, "frame": frame, "sizes": [len(one) for one in views]}
    with losses_of(peer, method, deadline_s):
        async with asyncio.timeout(deadline_s), _connection(connect, peer) as comm:
            await comm.write({"op": _CALL, **what})
            for view in views:
                _send(comm, view)
            reply = await _reply(comm, peer)
    return _result_of(reply, peer)


async def ask_worker(connect: Connect, peer: Peer, name: str, method: str, *arguments: Any, deadline_s: float) -> Any:
    """Call a method of another gradient worker, which this one can do without.

    Raises
    ------
    PeerLost
        If it is gone, does not answer, or raises whatever it may.
    """
    try:
        return await call_with_arrays(connect, peer, method, *arguments, deadline_s=deadline_s)
    except PeerLost:
        raise
    except Exception as error:
        raise PeerLost(f"{name} failed ({type(error).__name__}: {error})", peer=peer.address) from error


async def fetch_arrays(
    connect: Connect,
    peer: Peer,
    method: str,
    *arguments: Any,
    into: Callable[[Any], Sequence[NDArray[Any]] | None],
    deadline_s: float,
) -> bool:
    """Read what a method answers with (`Outgoing`) into memory at hand; return whether it is there, whole.

    Only where the way to the peer `is_streamed`.

    Parameters
    ----------
    into
        Takes the answer, and returns where what follows is read into; ``None`` if it is not wanted.  Once this has
        returned or raised, nothing is written there any more.

    Raises
    ------
    PeerLost, Exception
        As of `call`.
    """
    places: Sequence[NDArray[Any]] | None = None
    refused: Exception | None = None
    with losses_of(peer, method, deadline_s):
        async with asyncio.timeout(deadline_s), _connection(connect, peer) as comm:
            await comm.write({"op": _FETCH, "actor": peer.key, "function": method, "args": to_serialize(arguments)})
            reply = await _reply(comm, peer)
            if reply["status"] == OK:
                try:
                    places = _checked(into(reply["answer"]), reply["sizes"])
                except Exception as error:  # noqa: BLE001  it is no fault of the peer
                    refused = error
                if places is None:
                    comm.abort()  # what follows is for nobody
                else:
                    for place in places:
                        await _receive(comm, place)
                    reply = await _reply(comm, peer)
    if refused is not None:
        raise refused
    whole = _result_of(reply, peer)
    return places is not None and bool(whole)


def _checked(places: Sequence[NDArray[Any]] | None, sizes: Sequence[int]) -> Sequence[NDArray[Any]] | None:
    if places is not None and [one.nbytes for one in places] != list(sizes):
        raise ValueError(f"arrays of {list(sizes)} bytes do not fit into {[one.nbytes for one in places]}")
    return places


async def _reply(comm: Any, peer: Peer) -> dict[str, Any]:
    """Read an answer; raise `ActorGone` where the process does not know such calls, as one that has just begun."""
    reply = await comm.read()
    if not isinstance(reply, dict) or reply.get("status") not in {OK, ERROR, GONE}:
        why = reply.get("exception_text", "") if isinstance(reply, dict) else ""
        raise gone(peer, why)
    return reply


def _result_of(reply: dict[str, Any], peer: Peer) -> Any:
    if reply["status"] == OK:
        return reply.get("result")
    if reply["status"] == GONE:
        raise gone(peer)
    raise reply["exception"]


@asynccontextmanager
async def _connection(connect: Connect, peer: Peer) -> AsyncIterator[Any]:
    """Take a connection out of Dask's pool; it goes back there, unless it was left in the middle."""
    pool = _pool_of(connect, peer)
    comm = await pool.connect(peer.address)
    stream = comm.stream
    try:
        yield comm
    except BaseException:
        comm.abort()
        stream.close()  # Dask does not, where it waits for what is still to be sent
        raise
    finally:
        pool.reuse(peer.address, comm)


# --- who is called ---


async def _be_called(
    worker: Worker, comm: Any, actor: str, function: str, frame: bytes, sizes: Sequence[int]
) -> dict[str, Any]:
    async with _limited(comm, TIMEOUTS.push_s):
        arrays = [await _receive(comm, np.empty(size, np.uint8)) for size in sizes]
    method = _method_of(worker, actor, function)
    if method is None:
        return {"status": GONE}
    try:
        arguments = pickle.loads(frame, buffers=arrays)  # noqa: S301  of the same cluster, as all that Dask reads
        return {"status": OK, "result": to_serialize(await method(*arguments))}
    except Exception as error:  # noqa: BLE001  whatever the actor raises is its caller's
        return {"status": ERROR, "exception": to_serialize(error)}


async def _be_asked(worker: Worker, comm: Any, actor: str, function: str, args: tuple[Any, ...]) -> dict[str, Any]:
    method = _method_of(worker, actor, function)
    if method is None:
        return {"status": GONE}
    try:
        outgoing: Outgoing = await method(*args)
    except Exception as error:  # noqa: BLE001  whatever the actor raises is its caller's
        return {"status": ERROR, "exception": to_serialize(error)}
    views = [_bytes_of(one) for one in outgoing.arrays]
    sizes = [len(one) for one in views]
    await comm.write({"status": OK, "answer": to_serialize(outgoing.answer), "sizes": sizes})
    async with _limited(comm, TIMEOUTS.pull_s):
        for view in views:
            await _send(comm, view)
    return {"status": OK, "result": outgoing.holds()}


@asynccontextmanager
async def _limited(comm: Any, limit_s: float) -> AsyncIterator[None]:
    """Move bytes for so long; what stands still then is given up with its connection."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except Exception as error:
        comm.abort()
        raise CommClosedError(f"{type(error).__name__}: {error}") from error


def _method_of(worker: Worker, actor: str, function: str) -> Callable[..., Awaitable[Any]] | None:
    found: Callable[..., Awaitable[Any]] | None = getattr(worker.state.actors.get(actor), function, None)
    return found


# --- bytes ---


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _stream_of(comm: Any) -> IOStream:
    if comm.stream is None:
        raise CommClosedError("the connection was closed")
    stream: IOStream = comm.stream
    return stream


def _send(comm: Any, view: memoryview) -> Awaitable[None]:
    """Send bytes after all that is being sent; return what is done once they are out of the memory where they lie."""
    stream, last = _stream_of(comm), max(0, len(view) - 1) // _MOST_BYTES * _MOST_BYTES
    for start in range(0, last, _MOST_BYTES):
        stream.write(view[start : start + _MOST_BYTES])
    return stream.write(view[last:])


async def _receive(comm: Any, place: NDArray[Any]) -> NDArray[Any]:
    """Read into an array until it is full; return it."""
    view, stream = _bytes_of(place), _stream_of(comm)
    for start in range(0, len(view), _MOST_BYTES):
        await stream.read_into(cast("bytearray", view[start : start + _MOST_BYTES]))
    return place
