"""Calls to processes of the same host: over a socket where there is one, and the same to callers as through Dask."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from distributed import Status, Worker
from distributed.protocol.serialize import Serialize

from psplatform.errors import ClusterError
from psplatform.runtime.comms import local_calls, socket_names
from psplatform.runtime.comms.calls import ActorGone, Connect, Peer, PeerLost, PeerSilent, begin_call, call
from psplatform.runtime.comms.frames import LARGEST
from psplatform.runtime.comms.local_calls import local_connections_of
from psplatform.runtime.comms.socket_names import socket_of

LIMIT_S = 180.0
NOBODY = 65534
NO_ANSWER = "no answer"

Test = Callable[["Process", "Process", "Host"], Awaitable[None]]


class Host:
    """An actor."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.go_on = asyncio.Event()
        self.answer: Any = None
        self.pulls = 0

    async def deliver(self, sender: str, data: Any) -> Any:
        self.taken.append((sender, data))
        return len(self.taken)

    async def push(self, text: str) -> None:
        raise KeyError(text)

    async def pull(self, data: bytes) -> Any:
        self.pulls += 1
        await self.go_on.wait()
        return data if self.answer is None else self.answer

    async def transfer(self) -> Any:
        return Lock()  # no pickle has these

    async def alive(self) -> str:
        return "through Dask"


class Calls:
    """What Dask gives for an address: it reaches every process of the test, and notes that it was asked."""

    def __init__(self, process: Process | None, noted: list[str]) -> None:
        self._process, self._noted = process, noted

    async def actor_execute(self, *, function: str, args: list[Any], **how: Any) -> Any:
        self._noted.append(function)
        if self._process is None:
            raise ConnectionRefusedError("nobody listens")
        reply = await self._process.actor_execute(function=function, args=[plain(one) for one in args], **how)
        return {name: plain(value) for name, value in reply.items()}


def plain(value: Any) -> Any:
    return value.data if isinstance(value, Serialize) else value


class Process:
    """A Dask worker as far as calls need one."""

    actor_execute = Worker.actor_execute
    plugin_add = Worker.plugin_add
    status = Status.running

    def __init__(self, there: dict[str, Process], host: Any) -> None:
        self.address = f"tcp://{uuid.uuid4().hex}:1"
        self.state = SimpleNamespace(actors={"host": host})
        self.plugins: dict[str, Any] = {}
        self.through_dask: list[str] = []
        self.there = there
        self.opened = ExitStack()
        there[self.address] = self

    def rpc(self, address: str) -> Calls:
        return Calls(self.there.get(address), self.through_dask)

    async def listen(self) -> Connect:
        return await local_connections_of(cast("Worker", self), self.opened)

    async def ask(self, address: str, method: str, *arguments: Any, deadline_s: float = LIMIT_S) -> Any:
        if not hasattr(self, "connect"):
            self.connect = await self.listen()
        return await call(self.connect, Peer(address, "host"), method, *arguments, deadline_s=deadline_s)


async def of_two(there: dict[str, Process], test: Test) -> None:
    host = Host()
    caller, called = Process(there, Host()), Process(there, host)
    await called.listen()
    try:
        await test(caller, called, host)
    finally:
        for one in there.values():
            one.opened.close()
        await asyncio.sleep(0.01)  # a connection is closed in the next round of the loop
    assert [one.address for one in there.values() if _socket(one.address).exists()] == []


def _socket(address: str) -> Path:
    path = socket_of(address)
    assert path is not None
    return path


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let sockets lie where no process beside this test looks for some that are left over: it would connect to them.

    Short, as names of sockets must be, and open to other users, as the usual folder is.
    """
    with TemporaryDirectory(prefix="psp-test-", dir=socket_names._FOLDER) as folder:
        Path(folder).chmod(0o1777)
        monkeypatch.setattr(socket_names, "_FOLDER", Path(folder))
        socket_of.cache_clear()
        yield
    socket_of.cache_clear()


@pytest.fixture
def run() -> Callable[..., None]:
    """Run a test with the process that calls, the one that is called, and the actor there."""

    def run(test: Test) -> None:
        asyncio.run(asyncio.wait_for(of_two({}, test), LIMIT_S))

    return run


def test_what_is_said_for_every_gradient_goes_over_the_socket_and_the_rest_through_dask(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        assert await caller.ask(called.address, "deliver", "a", b"x") == 1
        assert caller.through_dask == []
        assert await caller.ask(called.address, "alive") == "through Dask"
        assert caller.through_dask == ["alive"]
        assert host.taken == [("a", b"x")]

    run(test)


def test_what_is_sent_arrives_whole_however_large_it_is(run: Any) -> None:
    """What is large goes through Dask, which does not keep the event loop from everything else."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        small = [os.urandom(size) for size in (0, 1, 1 << 16, 300_000, LARGEST - 1000, 3)]
        large = [os.urandom(LARGEST), np.arange(LARGEST), [np.zeros(LARGEST // 8), np.zeros(LARGEST // 8)]]
        for one in small:
            await caller.ask(called.address, "deliver", "a", one)
        assert [data for _, data in host.taken] == small
        assert caller.through_dask == []
        for one in large:
            await caller.ask(called.address, "deliver", "a", one)
        assert [data is one for (_, data), one in zip(host.taken[len(small) :], large, strict=True)] == [True] * 3
        assert caller.through_dask == ["deliver"] * 3

    run(test)


def test_arrays_that_are_small_arrive_as_such_and_can_be_written(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        await caller.ask(called.address, "deliver", "a", np.arange(10))
        ((_, array),) = host.taken
        array += 1
        assert array.tolist() == list(range(1, 11))
        assert caller.through_dask == []

    run(test)


def test_an_answer_that_is_too_large_is_asked_for_through_dask_and_so_is_the_next(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        host.go_on.set()
        host.answer = np.zeros(LARGEST)
        for _ in range(2):
            assert (await caller.ask(called.address, "pull", b"x")).size == LARGEST
        assert caller.through_dask == ["pull", "pull"]
        assert host.pulls == 3, "the first was done twice, as any call that fails may be"

    run(test)


def test_calls_at_once_do_not_wait_for_each_other(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        pulls = [asyncio.create_task(caller.ask(called.address, "pull", bytes([one]))) for one in range(5)]
        assert await caller.ask(called.address, "deliver", "a", b"x") == 1
        host.go_on.set()
        assert await asyncio.gather(*pulls) == [bytes([one]) for one in range(5)]
        assert caller.through_dask == []

    run(test)


def test_an_error_of_the_actor_is_the_callers_and_the_connection_goes_on(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        for _ in range(2):
            with pytest.raises(KeyError, match="weight"):
                await caller.ask(called.address, "push", "weight")
        assert await caller.ask(called.address, "deliver", "a", b"x") == 1
        assert caller.through_dask == []

    run(test)


@pytest.mark.parametrize("left", [{}, {"host": None}])
def test_an_actor_that_is_not_there_is_gone(run: Any, left: dict[str, None]) -> None:
    """One that is being made has only its name."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        called.state.actors = left
        with pytest.raises(ActorGone, match="has no host"):
            await caller.ask(called.address, "deliver", "a", b"x")
        assert caller.through_dask == []

    run(test)


def test_what_cannot_be_sent_is_said_to_the_caller(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        with pytest.raises(ClusterError, match="the answer cannot be sent"):
            await caller.ask(called.address, "transfer")
        assert await caller.ask(called.address, "deliver", "a", b"x") == 1

    run(test)


def test_an_answer_that_comes_late_is_not_that_of_the_next_call(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        with pytest.raises(PeerSilent, match=r"did not answer pull within 0\.05 s"):
            await caller.ask(called.address, "pull", b"first", deadline_s=0.05)
        next_one = asyncio.create_task(caller.ask(called.address, "pull", b"second"))
        await asyncio.sleep(0)  # first of all: it would take the connection of the one before
        await caller.ask(called.address, "deliver", "a", b"x")
        host.go_on.set()
        assert await next_one == b"second"

    run(test)


def test_a_process_that_listens_no_more_is_called_through_dask(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        waiting = asyncio.create_task(caller.ask(called.address, "pull", b"x"))
        await caller.ask(called.address, "deliver", "a", b"x")
        called.opened.close()
        with pytest.raises(PeerLost, match=f"{called.address} is gone"):
            await waiting
        assert await caller.ask(called.address, "deliver", "a", b"x") == 2
        assert caller.through_dask == ["deliver"]

    run(test)


def test_a_process_that_listens_nowhere_is_called_through_dask(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        silent = Process(called.there, host)
        assert await caller.ask(silent.address, "deliver", "a", b"x") == 1
        assert caller.through_dask == ["deliver"]

    run(test)


def test_without_room_for_a_socket_all_goes_through_dask(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        without = Process(called.there, host)
        monkeypatch.setattr(local_calls, "hidden_name", lambda path: Path("/nowhere/socket"))
        assert await without.ask(called.address, "deliver", "a", b"x") == 1
        assert await called.ask(without.address, "deliver", "a", b"x") == 2
        assert (without.through_dask, called.through_dask) == ([], ["deliver"])

    run(test)


def test_processes_without_an_address_of_their_own_have_no_socket() -> None:
    assert socket_of("inproc://192.0.2.1/12/1") is None
    names = ["tcp://node-1:9000", "tcp://node_1:9000", "tcp://[fd00::1:2]:9000", "tcp://[fd00:1::2]:9000"]
    assert len({socket_of(one) for one in names}) == 4


def test_a_process_of_another_address_does_not_answer_for_it(run: Any) -> None:
    """A link may lead there, or a socket be there that was another's."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        meant = Process(called.there, Host())
        os.link(_socket(called.address), _socket(meant.address))
        assert await caller.ask(meant.address, "deliver", "a", b"x") == 1
        assert (caller.through_dask, host.taken) == (["deliver"], [])
        _socket(meant.address).unlink()
        _socket(meant.address).symlink_to(_socket(called.address))
        assert await caller.ask(meant.address, "deliver", "a", b"x") == 2
        assert (caller.through_dask, host.taken) == (["deliver", "deliver"], [])
        _socket(meant.address).unlink()

    run(test)


def test_the_socket_is_there_until_the_last_that_uses_it_has_left(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        path = _socket(called.address)
        with ExitStack() as another:
            connect = await local_connections_of(cast("Worker", called), another)
            called.opened.close()
            assert path.exists()
        assert not path.exists()
        assert called.plugins == {}
        assert await call(connect, Peer(caller.address, "host"), "deliver", "a", b"x", deadline_s=LIMIT_S) == 1
        assert called.through_dask == ["deliver"], "once it has been left, all goes through Dask"
        await called.listen()
        assert path.exists()

    run(test)


def test_a_dask_worker_that_closes_closes_the_socket_first(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        waiting = asyncio.create_task(caller.ask(called.address, "pull", b"x"))
        await caller.ask(called.address, "deliver", "a", b"x")
        called.status = Status.closing
        (plugin,) = called.plugins.values()
        await plugin.teardown(called)
        assert not _socket(called.address).exists()
        with pytest.raises(PeerLost):
            await waiting
        called.opened.close()
        assert list(called.plugins.values()) == [plugin], "Dask is about to ask every plugin"

    run(test)


@pytest.mark.parametrize("rounds", range(5))
def test_a_connection_that_comes_while_the_socket_is_closed_is_closed_too(
    run: Any, rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    """However far the event loop has come with the connection."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        gc.disable()  # which closes what was lost
        with socket.socket(socket.AF_UNIX) as calling:
            calling.connect(str(_socket(called.address)))
            for _ in range(rounds):
                await asyncio.sleep(0)
            called.opened.close()
            for _ in range(5):
                await asyncio.sleep(0)
            with contextlib.suppress(ConnectionResetError):
                assert calling.recv(1, socket.MSG_DONTWAIT) == b""

    try:
        run(test)
    finally:
        gc.enable()
    assert [one for one in caplog.records if one.name == "asyncio"] == []


def test_connections_that_are_not_used_are_few(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        pulls = [asyncio.create_task(caller.ask(called.address, "pull", b"x")) for _ in range(20)]
        await caller.ask(called.address, "deliver", "a", b"x")
        host.go_on.set()
        await asyncio.gather(*pulls)
        (calls,) = caller.plugins.values()
        assert [len(idle) for idle in calls._idle.values()] == [4]
        called.opened.close()
        await asyncio.sleep(0.01)
        await caller.ask(called.address, "deliver", "a", b"x")
        assert calls._idle == {}

    run(test)


def test_a_socket_is_its_users_own(run: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        assert _socket(called.address).stat().st_mode & 0o777 == 0o600

    run(test)


def test_a_socket_is_removed_by_its_process_alone(run: Any) -> None:
    """Another process may have the address by the time that the one before is done."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        path = _socket(called.address)
        path.unlink()
        with socket.socket(socket.AF_UNIX) as another:
            another.bind(str(path))
            another.listen()
            called.opened.close()
            assert path.exists()
        path.unlink()

    run(test)


_OF_ANOTHER = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
listening.listen()
print("listens", flush=True)
while True:
    there, _ = listening.accept()
    print(len(there.recv(100)), flush=True)
"""


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a program that says when it listens; all are killed in the end."""
    begun: list[subprocess.Popen[str]] = []

    def program(text: str, *arguments: str) -> subprocess.Popen[str]:
        one = subprocess.Popen([sys.executable, "-c", text, *arguments], stdout=subprocess.PIPE, text=True)
        begun.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == "listens\n"
        return one

    yield program
    for one in begun:
        one.kill()
        one.communicate()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may begin a process of another user")
def test_nothing_is_said_to_a_process_of_another_user_that_took_the_name(run: Any, program: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        victim = Process(called.there, host)
        path = _socket(victim.address)
        other = program(_OF_ANOTHER, str(path), str(NOBODY))
        assert await caller.ask(victim.address, "deliver", "a", b"x") == 1
        assert caller.through_dask == ["deliver"]
        os.chown(path, os.geteuid(), -1)  # as if its file were this user's
        assert await caller.ask(victim.address, "deliver", "a", b"x", deadline_s=20.0) == 2
        assert caller.through_dask == ["deliver", "deliver"]
        assert await asyncio.to_thread(other.stdout.readline) == "0\n", "it was sent something"
        path.unlink()

    run(test)


_CONNECTING = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
there = socket.socket(socket.AF_UNIX)
there.settimeout(20.0)
print("listens", flush=True)  # as all of these programs say first
try:
    there.connect(sys.argv[1])
    print(len(there.recv(100)), flush=True)
except PermissionError:
    print("refused", flush=True)
except TimeoutError:
    print("let in", flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may begin a process of another user")
@pytest.mark.parametrize(("mode", "hears"), [(0o600, "refused\n"), (0o666, "0\n")])
def test_a_process_of_another_user_is_not_let_in(run: Any, program: Any, mode: int, hears: str) -> None:
    """Neither by the file, nor where that lets it."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        _socket(called.address).chmod(mode)
        other = program(_CONNECTING, str(_socket(called.address)), str(NOBODY))
        assert await asyncio.to_thread(other.stdout.readline) == hears

    run(test)


_LISTENING = """
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print("listens", flush=True)
there, _ = listening.accept()
there.recv(100)
os.kill(os.getpid(), int(sys.argv[2]))
"""


def test_a_process_that_is_killed_while_it_is_called_is_lost_and_leaves_nothing(run: Any, program: Any) -> None:
    async def test(caller: Process, called: Process, host: Host) -> None:
        victim = Peer(f"tcp://{uuid.uuid4().hex}:1", "host")
        path = _socket(victim.address)
        await caller.ask(called.address, "deliver", "a", b"x")  # it looks at all sockets once, before
        process = program(_LISTENING, str(path), str(int(signal.SIGKILL)))
        with pytest.raises(PeerLost, match=f"{victim.address} is gone"):
            await caller.ask(victim.address, "deliver", "a", b"x")
        process.wait(LIMIT_S)  # its sockets are closed one after the other
        with pytest.raises(PeerLost, match=f"{victim.address} is gone"):
            await caller.ask(victim.address, "deliver", "a", b"x")
        assert caller.through_dask == ["deliver"]
        assert path.exists()
        await Process(called.there, Host()).listen()
        assert not path.exists()
        assert _socket(called.address).exists()

    run(test)


# --- calls without a task on either side ---


class PlainHost(Host):
    """An actor whose methods have plain functions behind them."""

    PLAIN: ClassVar[dict[str, str]] = {"deliver": "take", "pull": "reply"}

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[asyncio.Future[Any]] = []

    def take(self, sender: str, data: Any) -> Any:
        if data == b"raise":
            raise ValueError(sender)
        self.taken.append((sender, data))
        return len(self.taken)

    def reply(self, data: bytes) -> asyncio.Future[Any]:
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]


async def begun(caller: Process, called: Process, method: str, *arguments: Any) -> tuple[Any, list[Any]]:
    """Begin a call where a connection is open; return it, and what comes of it: the answer, or that there is none."""
    if not hasattr(caller, "connect"):
        await caller.ask(called.address, "deliver", "first", b"")
    found: list[Any] = []
    question = begin_call(
        *(caller.connect, Peer(called.address, "host"), method, *arguments),
        deadline_s=LIMIT_S,
        done=found.append,
        otherwise=lambda: found.append(NO_ANSWER),
    )
    return question, found


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  whatever a test waits for
        await asyncio.sleep(0.001)


@pytest.fixture
def plain_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "Host", PlainHost)


WITH_PLAIN = pytest.mark.usefixtures("plain_host")


@WITH_PLAIN
def test_a_call_is_sent_at_once_where_a_connection_is_open(run: Any) -> None:
    async def talk(caller: Process, called: Process, host: Any) -> None:
        caller.connect = await caller.listen()
        question, _ = await begun(caller, called, "deliver", "a", b"1")
        assert question is None, "nothing is open yet"
        await caller.ask(called.address, "deliver", "first", b"")
        question, found = await begun(caller, called, "deliver", "a", b"1")
        assert question is not None
        await until(lambda: found)
        assert found == [2]
        assert host.taken == [("first", b""), ("a", b"1")]
        assert caller.through_dask == []

    run(talk)


@WITH_PLAIN
@pytest.mark.parametrize(
    ("method", "arguments"), [("alive", ()), ("deliver", ("a", b"0" * (1 << 21)))], ids=["seldom", "large"]
)
def test_what_goes_through_dask_is_not_sent_at_once(run: Any, method: str, arguments: tuple[Any, ...]) -> None:
    async def talk(caller: Process, called: Process, host: Any) -> None:
        question, _ = await begun(caller, called, method, *arguments)
        assert question is None
        question, found = await begun(caller, called, "deliver", "a", b"1")
        await until(lambda: found)
        assert found == [2], "the connection is as good as before"

    run(talk)


@WITH_PLAIN
def test_an_answer_that_says_something_comes_after_what_the_call_has_led_to(run: Any) -> None:
    """Who is answered looks for it: a commit for instance, which its server, in the same process, makes visible."""

    async def talk(caller: Process, called: Process, host: Any) -> None:
        done, loop = list[str](), asyncio.get_running_loop()

        def take(sender: str, data: Any) -> Any:
            loop.call_soon(done.append, "led to")
            return b"said"

        await caller.ask(called.address, "deliver", "first", b"")
        host.take = take
        begin_call(
            caller.connect,
            Peer(called.address, "host"),
            *("deliver", "a", b"1"),
            deadline_s=LIMIT_S,
            done=done.append,
            otherwise=lambda: done.append(NO_ANSWER),
        )
        await until(lambda: len(done) == 2)
        assert done == ["led to", b"said"]

    run(talk)


@WITH_PLAIN
def test_an_error_of_a_plain_function_is_said_and_the_connection_goes_on(run: Any) -> None:
    async def talk(caller: Process, called: Process, host: Any) -> None:
        _, found = await begun(caller, called, "deliver", "a", b"raise")
        await until(lambda: found)
        assert found == [NO_ANSWER]
        with pytest.raises(ValueError, match="a"):
            await caller.ask(called.address, "deliver", "a", b"raise")
        _, found = await begun(caller, called, "deliver", "b", b"")
        await until(lambda: found)
        assert found == [2]

    run(talk)


@WITH_PLAIN
def test_an_answer_may_come_later(run: Any) -> None:
    async def talk(caller: Process, called: Process, host: Any) -> None:
        _, found = await begun(caller, called, "pull", b"")
        await until(lambda: host.answers)
        assert found == []
        host.answers[0].set_result("the answer")
        await until(lambda: found)
        assert found == ["the answer"]
        asking = asyncio.create_task(caller.ask(called.address, "pull", b""))
        await until(lambda: len(host.answers) == 2)
        host.answers[1].set_exception(ValueError("none"))
        with pytest.raises(ValueError, match="none"):
            await asking

    run(talk)


@WITH_PLAIN
def test_an_answer_to_what_was_given_up_is_not_heard(run: Any) -> None:
    """Nor taken for that of the next call."""

    async def talk(caller: Process, called: Process, host: Any) -> None:
        question, found = await begun(caller, called, "pull", b"")
        await until(lambda: host.answers)
        question.give_up()
        host.answers[0].set_result("late")
        assert await caller.ask(called.address, "deliver", "a", b"") == 2
        await asyncio.sleep(0.01)
        assert found == []

    run(talk)


@WITH_PLAIN
def test_who_has_sent_a_call_hears_that_the_other_end_has_gone(run: Any) -> None:
    async def talk(caller: Process, called: Process, host: Any) -> None:
        _, found = await begun(caller, called, "pull", b"")
        await until(lambda: host.answers)
        called.opened.close()
        await until(lambda: found)
        assert found == [NO_ANSWER]
        assert host.answers[0].cancelled(), "nobody waits for it"

    run(talk)


@WITH_PLAIN
def test_an_actor_that_is_not_there_is_not_called_at_once(run: Any) -> None:
    async def talk(caller: Process, called: Process, host: Any) -> None:
        await caller.ask(called.address, "deliver", "a", b"")
        called.state.actors.clear()
        _, found = await begun(caller, called, "deliver", "a", b"")
        await until(lambda: found)
        assert found == [NO_ANSWER]

    run(talk)


class Unreadable(Exception):
    """What a pickle of it cannot be made into."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one + other)


@WITH_PLAIN
def test_an_answer_that_cannot_be_read_here_is_none(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not end the connection, and who waits for it hears so at once."""

    def take(self: Any, sender: str, data: Any) -> Any:
        if sender == "a":
            raise Unreadable(1, 2)
        return True

    monkeypatch.setattr(PlainHost, "take", take)

    async def talk(caller: Process, called: Process, host: Any) -> None:
        _, found = await begun(caller, called, "deliver", "a", b"")
        await until(lambda: found)
        assert found == [NO_ANSWER]
        question, found = await begun(caller, called, "deliver", "b", b"")
        assert question is not None, "over the same connection"
        await until(lambda: found)
        assert found == [True]

    run(talk)


def test_a_process_that_ends_while_it_begins_to_listen_reads_no_other_socket_instead(run: Any) -> None:
    """The descriptor of a closed socket is the next one's, which would not be read if the event loop still knew it."""

    async def test(caller: Process, called: Process, host: Host) -> None:
        loop = asyncio.get_running_loop()
        before = set(cast(Any, loop)._selector.get_map())
        listening = asyncio.create_task(caller.listen())
        await asyncio.sleep(0)
        assert set(cast(Any, loop)._selector.get_map()) > before, "it has begun"
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        for _ in range(5):
            await asyncio.sleep(0)
        assert set(cast(Any, loop)._selector.get_map()) == before

    run(test)
