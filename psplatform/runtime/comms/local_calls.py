"""Calls between processes of one host over Unix sockets.

Dask starts processes, finds them and notices their ends.  It also carries what is called seldom, what is large and
what leaves the host.  The calls of every gradient (`LOCAL`) go over a socket where the peer has one.  Peers are named
by Dask's address, from which the socket's name follows; a peer without a socket is called through Dask.

As in Dask, a connection serves one call at a time, and a call that is given up closes its connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from distributed import Worker, WorkerPlugin
from distributed.protocol.serialize import Serialize
from distributed.worker import WORKER_ANY_RUNNING

from psplatform.errors import ClusterError
from psplatform.runtime.comms.calls import ERROR, GONE, OK, Connect, DirectCalls, connections_of, plain_method
from psplatform.runtime.comms.frames import Connection, pickled, unpickled
from psplatform.runtime.comms.socket_names import hidden_name, is_of_this_user, remove_socket, socket_of, sweep_sockets

LOCAL: Final = frozenset({"deliver", "forget", "pull", "push", "transfer"})
"""Methods of actors that are called for every gradient or every commit."""

_PLUGIN: Final = "psplatform-local-calls"
_MOST_IDLE: Final = 4
"""Connections to one address that are kept for the next call."""

_ELSEWHERE: Final = "another address"
_LARGE: Final = "too large"
_NOT_ASKED: Final = "not asked, as the question is too large"
_LOST: Final = "the connection was closed"


async def local_connections_of(worker: Worker, until: ExitStack) -> Connect:
    """Return the way from a Dask worker's process to every other, and listen for processes of this host.

    Both until `until` is closed; from then on, and where there can be no socket, all calls go through Dask.
    """
    calls = worker.plugins.get(_PLUGIN)
    if not isinstance(calls, _LocalCalls):
        calls = _LocalCalls(worker)
        calls.use(until)
        await worker.plugin_add(plugin=calls, name=_PLUGIN)
    else:
        calls.use(until)
    return calls.connect


class _LocalCalls(WorkerPlugin):
    """The socket that a Dask worker listens at, and its connections to those of others.

    A plugin, so that it is closed before anything else of the Dask worker is.

    Attributes
    ----------
    through_dask
        Gives the remote calls of an address through Dask.
    """

    name = _PLUGIN

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.through_dask = connections_of(worker)
        self._users = 0
        self._closed = False
        self._closing = ExitStack()
        self._serving = set[_Serving]()
        self._idle = dict[str, list[_Calling]]()
        self._large = set[tuple[str, str]]()

    def use(self, until: ExitStack) -> None:
        """Be there until that is closed, and all others that were given."""
        self._users += 1
        until.callback(self._leave)

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self.close()
            if self._worker.status in WORKER_ANY_RUNNING and self._worker.plugins.get(_PLUGIN) is self:
                del self._worker.plugins[_PLUGIN]

    async def setup(self, worker: Worker) -> None:
        """Listen, if there can be a socket."""
        path = socket_of(worker.address)
        if path is not None:
            with contextlib.suppress(OSError):
                await self._listen(path)

    async def teardown(self, worker: Worker) -> None:
        """Close everything."""
        self.close()

    def close(self) -> None:
        """Listen no more, and close all connections; what is called over them is lost."""
        if self._closed:
            return
        self._closed = True
        self._closing.close()
        for one in [*self._serving, *(calling for idle in self._idle.values() for calling in idle)]:
            one.close()
        self._idle.clear()
        sweep_sockets()

    async def _listen(self, path: Path) -> None:
        sweep_sockets()
        hidden = hidden_name(path)  # no process finds a socket that nothing listens at yet
        loop = asyncio.get_running_loop()
        with ExitStack() as opened:
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            opened.callback(loop.call_soon, listening.close)
            opened.callback(hidden.unlink, missing_ok=True)
            listening.bind(str(hidden))
            hidden.chmod(0o600)
            inode = hidden.lstat().st_ino
            # Before the socket is closed, also if this is cancelled: its descriptor may be another socket's at once.
            opened.callback(loop.remove_reader, listening)
            server = await loop.create_unix_server(self._make_serving, sock=listening)
            # Asyncio loses a connection that it has accepted if the server is closed before the next round.
            opened.callback(loop.call_soon, server.close)
            hidden.rename(path)
            opened.callback(remove_socket, path, inode)
            if not self._closed:  # meanwhile
                self._closing = opened.pop_all()

    def _make_serving(self) -> _Serving:
        return _Serving(self._worker, self._serving, lambda: not self._closed)

    def connect(self, address: str) -> Any:
        """Return the remote calls of an address."""
        path = None if self._closed or address == self._worker.address else socket_of(address)
        return self.through_dask(address) if path is None else _Calls(self, address, path)

    async def execute(self, address: str, path: Path, how: dict[str, Any]) -> dict[str, Any]:
        """Call a method over the socket of an address, or through Dask."""
        kind = how["actor"], how["function"]
        if kind[1] in LOCAL and kind not in self._large:
            calling = await self._open(address, path)
            if calling is not None:
                status, value = await self._ask(address, calling, kind, how["args"])
                if status == GONE:
                    raise KeyError(kind[0])
                if status == _LARGE:
                    self._large.add(kind)
                if status in (OK, ERROR):
                    return {"status": status, "result" if status == OK else "exception": value}
        reply: dict[str, Any] = await self.through_dask(address).actor_execute(**how)
        return reply

    def begin(
        self, address: str, kind: tuple[str, str], arguments: tuple[Any, ...], done: Callable[[str, Any], None]
    ) -> _Calling | None:
        """Call a method over a connection that is open already; see `DirectCalls.begin`."""
        if kind[1] not in LOCAL or kind in self._large:
            return None
        question = pickled((address, *kind, arguments))
        calling = self._take_idle(address) if question is not None else None
        if calling is None or question is None:
            return None

        def take(answer: bytes | None) -> None:
            if answer is None:
                done(_LOST, None)
                return
            self._put_back(address, calling)
            try:
                status, value = unpickled(answer)
            except ClusterError as error:
                status, value = ERROR, error
            if status == _LARGE:
                self._large.add(kind)
            done(status, value)

        calling.ask(question, take)
        return calling

    def _take_idle(self, address: str) -> _Calling | None:
        idle = self._idle.get(address, [])
        while idle:
            calling = idle.pop()
            if calling.is_open:
                return calling
        self._idle.pop(address, None)
        return None

    def _put_back(self, address: str, calling: _Calling) -> None:
        idle = self._idle.setdefault(address, [])
        if self._closed or len(idle) >= _MOST_IDLE:
            calling.close()
        else:
            idle.append(calling)

    async def _open(self, address: str, path: Path) -> _Calling | None:
        calling = self._take_idle(address)
        if calling is not None:
            return calling
        if not is_of_this_user(path):
            return None
        try:
            _, calling = await asyncio.get_running_loop().create_unix_connection(_Calling, str(path))
            if not calling.is_to_this_user:
                calling.close()
                return None
        except OSError:
            return None
        return calling

    async def _ask(
        self, address: str, calling: _Calling, kind: tuple[str, str], arguments: list[Any]
    ) -> tuple[str, Any]:
        plain = [one.data if isinstance(one, Serialize) else one for one in arguments]
        try:
            question = pickled((address, *kind, plain))
            answer = await calling.answer_to(question) if question is not None else None
        except BaseException:
            calling.close()  # a late answer must not be taken for that of the next call
            raise
        self._put_back(address, calling)
        status, value = unpickled(answer) if answer is not None else (_NOT_ASKED, None)
        return status, value


class _Calls(DirectCalls):
    """The remote calls of one address, as Dask's ``rpc`` offers them."""

    def __init__(self, calls: _LocalCalls, address: str, path: Path) -> None:
        self._calls, self._address, self._path = calls, address, path

    @property
    def pool(self) -> Any:
        """Dask's connections, over which what is large goes all the same."""
        return getattr(self._calls.through_dask(self._address), "pool", None)

    def begin(
        self, actor: str, function: str, arguments: tuple[Any, ...], done: Callable[[str, Any], None]
    ) -> _Calling | None:
        """Send a call now over a connection that is open; see `DirectCalls.begin`."""
        return self._calls.begin(self._address, (actor, function), arguments, done)

    async def actor_execute(self, **how: Any) -> dict[str, Any]:
        """Do what the peer's own `actor_execute` does."""
        return await self._calls.execute(self._address, self._path, how)


class _Calling(Connection):
    """The end that calls."""

    def __init__(self) -> None:
        super().__init__()
        self._done: Callable[[bytes | None], None] | None = None

    def ask(self, question: bytes, done: Callable[[bytes | None], None]) -> None:
        """Send a call; `done` is called with the answer, or with ``None`` if the other end has gone."""
        self._done = done
        self.send(question)

    async def answer_to(self, question: bytes) -> bytes:
        """Send a call; return the answer.

        Raises
        ------
        OSError
            If the other end has gone.
        """
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self.ask(question, lambda frame: None if answer.done() else answer.set_result(frame))
        frame = await answer
        if frame is None:
            raise ConnectionResetError(_LOST)
        return frame

    def give_up(self) -> None:
        """Hear no answer any more; a late one must not be taken for that of the next call."""
        self._done = None
        self.close()

    def take(self, frame: bytes) -> None:
        """Take an answer."""
        self._finish(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the caller."""
        self._finish(None)

    def _finish(self, frame: bytes | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(frame)


class _Serving(Connection):
    """The end that is called."""

    def __init__(self, worker: Worker, serving: set[_Serving], serves: Callable[[], bool]) -> None:
        super().__init__()
        self._worker, self._serving, self._serves = worker, serving, serves
        self._doing: asyncio.Future[Any] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse processes of other users, and all once this process serves no more."""
        super().connection_made(transport)
        self._serving.add(self)
        if not self._serves() or not self.is_to_this_user:
            self.close()

    def take(self, frame: bytes) -> None:
        """Take a call."""
        try:
            address, actor, function, arguments = unpickled(frame)
        except ClusterError as error:
            self._answer(ERROR, error)
            return
        if address != self._worker.address:
            self._answer(_ELSEWHERE, None)
            return
        plain = plain_method(self._worker, actor, function)
        if plain is None:
            self._doing = asyncio.get_running_loop().create_task(self._execute(actor, function, arguments))
            return
        try:
            value = plain(*arguments)
        except Exception as error:  # noqa: BLE001  whatever the actor raises is its caller's
            self._answer(ERROR, error)
            return
        if isinstance(value, asyncio.Future):
            self._doing = value
            value.add_done_callback(self._on_done)
        elif isinstance(value, bytes):
            # After what the call has led to in this process, which the asker may look for when it is answered.
            asyncio.get_running_loop().call_soon(self._answer, OK, value)
        else:
            self._answer(OK, value)

    def connection_lost(self, exc: Exception | None) -> None:
        """Go on with what was called, as Dask does: a caller that gave it up may count on it all the same."""
        if self._doing is None or self._doing.done():
            self._serving.discard(self)

    async def _execute(self, actor: str, function: str, arguments: tuple[Any, ...]) -> None:
        try:
            reply = await self._worker.actor_execute(actor=actor, function=function, args=arguments)
        except (KeyError, AttributeError):
            self._answer(GONE, None)
        except asyncio.CancelledError:
            self.close()  # or the caller would wait until its deadline
            raise
        else:
            status = reply["status"]
            self._answer(status, reply["result" if status == OK else "exception"].data)
        finally:
            if not self.is_open:
                self._serving.discard(self)

    def _on_done(self, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            self.close()
        elif (error := done.exception()) is not None:
            self._answer(ERROR, error)
        else:
            self._answer(OK, done.result())
        if not self.is_open:
            self._serving.discard(self)

    def _answer(self, status: str, value: Any) -> None:
        self.send(self._packed(status, value))

    def _packed(self, status: str, value: Any) -> bytes:
        try:
            answer = pickled((status, value))
        except Exception as error:  # noqa: BLE001  whatever keeps it from being pickled
            answer = pickled((ERROR, ClusterError(f"the answer cannot be sent ({type(error).__name__}: {error})")))
        return answer if answer is not None else pickled((_LARGE, None)) or b""

    def close(self) -> None:
        """Close it at once, and give up what is called."""
        super().close()
        if self._doing is not None:
            self._doing.cancel()
