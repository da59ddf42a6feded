"""Calls from one process to another's actor, each with a deadline.

A handle of a Dask actor must not be passed on: the scheduler then fails its holder when the actor's host dies,
and a handle unpickled elsewhere waits for ever.  So a peer is named by address and key, and called directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from distributed import Worker
from distributed.protocol.serialize import Serialize, to_serialize

from psplatform.errors import MORE_FILES, ClusterError, lacks_files
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.timeouts import TIMEOUTS

_SMALL_BYTES: Final = 1 << 16
"""Bytes that are copied into a message: a frame of their own takes longer to make and to read."""

Connect = Callable[[str], Any]
"""``client.rpc`` or what `connections_of` a worker returns: gives the remote calls of a Dask worker's address."""


class PeerLost(ClusterError):
    """A peer's process or actor is gone, or did not answer within the deadline."""


class ActorGone(PeerLost):
    """A peer's process answers that it has no such actor: not yet, no longer, or only its name."""


class PeerSilent(PeerLost):
    """A peer did not answer within the deadline: it may be gone, stopped or busy."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One actor: the address of its Dask worker, and its key there."""

    address: str
    key: str


def connections_of(worker: Worker) -> Connect:
    """Return the way from a Dask worker's process to every other, and for what is delivered there to its own actors."""
    own = _Own(worker)
    return lambda address: own if address == worker.address else worker.rpc(address)


class _Own:
    """The calls of a process to its own actors: what is delivered is immutable, so it need not leave the process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def actor_execute(self, *, actor: str, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Do what the Dask worker's own `actor_execute` does."""
        if function != "deliver":
            calls = self._worker.rpc(self._worker.address)
            return await calls.actor_execute(actor=actor, function=function, args=args, kwargs=kwargs)
        host: Any = self._worker.state.actors[actor]
        deliver = host.deliver
        try:
            arguments = [one.data if isinstance(one, Serialize) else one for one in args]
            return {"status": "OK", "result": await deliver(*arguments)}
        except Exception as error:  # noqa: BLE001  whatever the actor raises is its caller's
            return {"status": "error", "exception": error}


async def call(connect: Connect, peer: Peer, method: str, *arguments: Any, deadline_s: float) -> Any:
    """Return what `method` of the peer's actor returns.

    Raises
    ------
    PeerLost
        If the peer is gone; whether the call was executed is then not known.
    PeerSilent
        The same, where it said nothing for `deadline_s`.
    Exception
        Whatever the method raised.
    """
    try:
        async with asyncio.timeout(deadline_s):
            reply = await connect(peer.address).actor_execute(
                actor=peer.key, function=method, args=[_in_transit(one) for one in arguments], kwargs={}
            )
    except TimeoutError:
        raise PeerSilent(f"{peer.address} did not answer {method} within {deadline_s:g} s", peer=peer.address) from None
    except OSError as error:
        _stay_cancelled()
        text = f"{peer.address} is gone ({error})"
        if lacks_files(error):
            text = f"{peer.address} cannot be reached from here: this process has no file left to open; {MORE_FILES}"
        raise PeerLost(text, peer=peer.address) from error
    except RuntimeError as error:
        # Dask closed this process's own connections: its scheduler is gone, or it ends.
        _stay_cancelled()
        raise PeerLost(f"cannot reach {peer.address} any more ({error})", peer=peer.address) from error
    except (KeyError, AttributeError) as error:
        # An actor that is being made has only its name.
        raise ActorGone(f"{peer.address} has no {peer.key}", peer=peer.address) from error
    if reply["status"] == "error":
        raise reply["exception"]
    return reply["result"]


async def call_the_living(connect: Connect, peer: Peer, method: str, *arguments: Any, deadline_s: float) -> Any:
    """Do what `call` does, but fail soon where the peer's process has ended: Dask goes on trying to connect to it.

    For callers that do not watch that process.
    """
    asking = asyncio.ensure_future(call(connect, peer, method, *arguments, deadline_s=deadline_s))
    try:
        while not (await asyncio.wait({asking}, timeout=TIMEOUTS.doubt_s))[0]:
            if await is_dead(peer) and not asking.done():
                raise PeerLost(f"{peer.address} is gone", peer=peer.address)
        return await asking
    finally:
        asking.cancel()


def _in_transit(argument: Any) -> Any:
    plain = isinstance(argument, str | float) or (isinstance(argument, bytes) and len(argument) <= _SMALL_BYTES)
    return argument if plain else to_serialize(argument)


async def approach(connect: Connect, peer: Peer) -> ProcessId | None:
    """Connect to an actor ahead of what there will be to say; return in which process it is, if it says so.

    Connecting takes several round trips, each of which takes long once cores are busy.
    """
    try:
        process: ProcessId | None = await call(connect, peer, "alive", 0.0, deadline_s=TIMEOUTS.approach_s)
    except PeerLost:
        return None
    return process


async def wakes(connect: Connect, peer: Peer, method: str, *arguments: Any) -> bool:
    """Wait until the process of a silent peer answers anything, if only that it has no such actor; return whether."""
    try:
        await call(connect, peer, method, *arguments, deadline_s=TIMEOUTS.waking_s)
    except ActorGone:
        return True
    except PeerLost:
        return False
    return True


async def is_dead(peer: Peer) -> bool:
    """Whether the peer's process has certainly ended: nobody listens at its address any more.

    Where there is no address of TCP, and where nothing is heard at all, the answer is no.
    """
    scheme, _, place = peer.address.rpartition("://")
    host, _, port = place.rpartition(":")
    if scheme not in ("tcp", "tls") or not port.isdecimal():
        return False
    try:
        async with asyncio.timeout(TIMEOUTS.probe_s):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


def _stay_cancelled() -> None:
    # Dask's connection pool turns a cancellation that meets its closing into an OSError.  A cancelled caller must
    # not go on trying, or the process never ends.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
