"""Calls from one process to another's actor, each with a deadline.

A handle of a Dask actor must not be passed on: the scheduler then fails its holder when the actor's host dies,
and a handle unpickled elsewhere waits for ever.  So a peer is named by address and key, and called directly.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol
from weakref import WeakKeyDictionary

from distributed import Worker
from distributed.protocol.serialize import Serialize, to_serialize

from psplatform.errors import MORE_FILES, ClusterError, lacks_files
from psplatform.runtime.comms.processes import ProcessId
from psplatform.runtime.comms.timers import Deadlines
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


class Question(Protocol):
    """A call that has been sent and not been answered yet."""

    def give_up(self) -> None:
        """Hear no answer any more."""


class DirectCalls:
    """The remote calls of an address that can be sent, and are answered, without a task of the event loop.

    Attributes
    ----------
    within
        Whether they stay in this process: then they take what is immutable as it is, and are answered at once.
    """

    within: ClassVar[bool] = False

    def begin(
        self, actor: str, function: str, arguments: tuple[Any, ...], done: Callable[[str, Any], None]
    ) -> Question | None:
        """Send a call now; return ``None``, and have sent nothing, where that is not possible.

        `done` is called once, after this has returned, unless the question is given up: with `OK` and what the method
        returned, or with another word; then it is to be called in the ordinary way, which says what is wrong.
        """
        return None

    def answer(self, actor: str, function: str, arguments: tuple[Any, ...]) -> tuple[str, Any] | None:
        """Call a method of this process; return `OK` and its answer, or `ERROR` and what it has raised.

        ``None`` says that nothing was called, as the answer cannot be had at once.
        """
        return None


OK: Final = "OK"
"""Status of a call that was executed and raised nothing."""

ERROR: Final = "error"
"""Of one that raised."""

GONE: Final = "no such actor"
"""Of one that nobody was there for."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One actor: the address of its Dask worker, and its key there."""

    address: str
    key: str


def connections_of(worker: Worker) -> Connect:
    """Return the way from a Dask worker's process to every other, and for what is delivered there to its own actors."""
    own = _Own(worker)
    return lambda address: own if address == worker.address else worker.rpc(address)


class _Own(DirectCalls):
    """The calls of a process to its own actors: what is delivered is immutable, so it need not leave the process."""

    within = True

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def answer(self, actor: str, function: str, arguments: tuple[Any, ...]) -> tuple[str, Any] | None:
        """Call a method that answers at once."""
        plain = plain_method(self._worker, actor, function) if function == "deliver" else None
        if plain is None:
            return None
        try:
            return OK, plain(*arguments)
        except Exception as error:  # noqa: BLE001  whatever the actor raises is its caller's
            return ERROR, error

    async def actor_execute(self, *, actor: str, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Do what the Dask worker's own `actor_execute` does."""
        if function != "deliver":
            calls = self._worker.rpc(self._worker.address)
            return await calls.actor_execute(actor=actor, function=function, args=args, kwargs=kwargs)
        host: Any = self._worker.state.actors[actor]
        deliver = host.deliver
        try:
            arguments = [one.data if isinstance(one, Serialize) else one for one in args]
            return {"status": OK, "result": await deliver(*arguments)}
        except Exception as error:  # noqa: BLE001  whatever the actor raises is its caller's
            return {"status": ERROR, "exception": error}


def plain_method(worker: Worker, actor: str, function: str) -> Callable[..., Any] | None:
    """Return the plain function that does what a method of an actor of this process does, if there is one.

    An actor names such functions in ``PLAIN``, by method.  They return what the method would, or a future of that.
    """
    host: Any = worker.state.actors.get(actor)
    name = getattr(type(host), "PLAIN", {}).get(function)
    found: Callable[..., Any] | None = getattr(host, name) if name is not None else None
    return found


def is_within(connect: Connect, peer: Peer) -> bool:
    """Whether calls to a peer stay in this process."""
    calls = connect(peer.address)
    return isinstance(calls, DirectCalls) and calls.within


class Begun:
    """A call that was sent at once, with its deadline."""

    def __init__(self, done: Callable[[Any], None], otherwise: Callable[[], None]) -> None:
        self._done, self._otherwise = done, otherwise
        self._question: Question | None = None
        self._limits: Deadlines[Begun] | None = None

    def send(self, calls: DirectCalls, peer: Peer, method: str, arguments: tuple[Any, ...], deadline_s: float) -> bool:
        """Send it; return whether that was possible."""
        self._question = calls.begin(peer.key, method, arguments, self._on_answered)
        if self._question is None:
            return False
        self._limits = _deadlines_of_calls(deadline_s)
        self._limits.begin(self)
        return True

    def give_up(self) -> None:
        """Hear nothing of it any more."""
        if self._limits is not None:
            self._limits.end(self)
        question, self._question = self._question, None
        if question is not None:
            question.give_up()

    def _on_answered(self, status: str, answer: Any) -> None:
        self._question = None
        if self._limits is not None:
            self._limits.end(self)
        if status == OK:
            self._done(answer)
        else:
            self._otherwise()

    def end_unanswered(self) -> None:
        """Hear nothing of it any more, and say so: its time is over."""
        self.give_up()
        self._otherwise()


_deadlines: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[float, Deadlines[Begun]]]] = WeakKeyDictionary()
"""Of the calls begun on each event loop, by how long they may take: a timer for each call would cost more."""


def _deadlines_of_calls(deadline_s: float) -> Deadlines[Begun]:
    of_loop = _deadlines.setdefault(asyncio.get_running_loop(), {})
    found = of_loop.get(deadline_s)
    if found is None:
        found = of_loop[deadline_s] = Deadlines(deadline_s, Begun.end_unanswered)
    return found


def answer_within(connect: Connect, peer: Peer, method: str, *arguments: Any) -> tuple[str, Any] | None:
    """Call a method of an actor of this process; see `DirectCalls.answer`."""
    calls = connect(peer.address)
    return calls.answer(peer.key, method, arguments) if isinstance(calls, DirectCalls) else None


def begin_call(
    connect: Connect,
    peer: Peer,
    method: str,
    *arguments: Any,
    deadline_s: float,
    done: Callable[[Any], None],
    otherwise: Callable[[], None],
) -> Begun | None:
    """Send a call now, where there is a way that needs no waiting; return ``None`` where there is none.

    Parameters
    ----------
    done
        Takes what the method returned.
    otherwise
        Called instead where it raised, where the peer is lost and where it did not answer in time: `call` tells which.
    """
    calls = connect(peer.address)
    begun = Begun(done, otherwise)
    return begun if isinstance(calls, DirectCalls) and begun.send(calls, peer, method, arguments, deadline_s) else None


def gone(peer: Peer, why: str = "") -> ActorGone:
    """Return what is raised where a peer's process has no such actor."""
    return ActorGone(f"{peer.address} has no {peer.key}{f' ({why})' if why else ''}", peer=peer.address)


@contextlib.contextmanager
def losses_of(peer: Peer, method: str, deadline_s: float) -> Iterator[None]:
    """Raise `PeerLost`, or what it is in particular, instead of what Dask raises where a peer does not answer."""
    try:
        yield
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
        raise gone(peer) from error


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
    with losses_of(peer, method, deadline_s):
        async with asyncio.timeout(deadline_s):
            reply = await connect(peer.address).actor_execute(
                actor=peer.key, function=method, args=[_in_transit(one) for one in arguments], kwargs={}
            )
    if reply["status"] == ERROR:
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


async def while_heard(connect: Connect, peer: Peer, calling: Coroutine[Any, Any, Any], doing: str) -> Any:
    """Return what a long call to a peer returns, unless the peer's process stops answering meanwhile.

    Parameters
    ----------
    calling
        The call; what it raises is raised.
    doing
        What is told of it, after "while".

    Raises
    ------
    PeerSilent
        If the peer's process answers nothing for a minute: it is stopped.
    """
    asking, watching = asyncio.ensure_future(calling), asyncio.ensure_future(_until_silent(connect, peer))
    try:
        await asyncio.wait([asking, watching], return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            text = f"{peer.address} fell silent for {TIMEOUTS.open_silent_s:g} s while {doing}"
            raise PeerSilent(text, peer=peer.address)
        return asking.result()
    finally:
        asking.cancel()
        watching.cancel()


async def _until_silent(connect: Connect, peer: Peer) -> None:
    """Return once the process of a peer does not answer at all: what an actor does for long, it does in a thread."""
    while True:
        await asyncio.sleep(TIMEOUTS.open_look_s)
        try:
            await call(connect, peer, "alive", 0.0, deadline_s=TIMEOUTS.open_silent_s)
        except PeerSilent:
            return
        except PeerLost:
            continue  # what the actor is asked breaks as well, if the process is gone


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
