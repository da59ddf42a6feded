"""What a coordinator's process tells programs, and what becomes of it when it ends or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.policy import Policy
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import Begin, StopRequested
from psplatform.core.protocol.wire import decode, encode
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import ClusterError
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous
from psplatform.policies.bsp import BulkSynchronous
from psplatform.runtime.actors.coordinator.driver import Phase
from psplatform.runtime.actors.coordinator.host import CoordinatorHost
from psplatform.runtime.actors.coordinator.tenure import Tenure
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.store.run_log import RunLog

Jump = Callable[[Any], Any]
PLAN = Plan("run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant())


class Nobody:
    """Stands for those around a coordinator, and does nothing for it."""

    live = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Any]:
    """Put a coordinator in charge, with nobody around it but those that are given; return its actor."""

    async def make(others: Any = None, standbys: Any = None, fabric: Any = None) -> CoordinatorHost:
        host = CoordinatorHost("run")
        place: Any = SimpleNamespace(
            program=SimpleNamespace(
                run="run",
                term=1,
                cold=False,
                plan=PLAN,
                worker_lease_s=10.0,
                fabric=fabric,
                store=str(tmp_path),
                description={"policy": "asp"},
            ),
            peer=Peer("tcp://10.0.0.1:1234", "coordinator"),
            actor=CoordinatorHost,
            connect=None,
            client=None,
            process=("", 0),
            fleet=Nobody(),
            unavailable=Nobody(),
            over=host._over,
            background=Background(),
            closing=ExitStack(),
            card=None,
        )
        host.tenure = tenure = Tenure(place, await RunLog.open(str(tmp_path), 1), 1)
        around: Any = others or Nobody()
        driver = tenure.driver
        driver.copies = driver.worker_pool = around
        driver.standbys = standbys or cast(Any, Nobody())
        driver.election = driver.sealer = cast(Any, Nobody())
        driver.inbox = driver.make_inbox()
        return host

    return make


@pytest.fixture
def leading(begin: Callable[..., Any]) -> Callable[..., Any]:
    """Put a coordinator in charge of a run that has begun."""

    async def make(
        others: Any = None, standbys: Any = None, policy: type[Policy] = Asynchronous, fabric: Any = None
    ) -> CoordinatorHost:
        host: CoordinatorHost = await begin(others, standbys, fabric)
        assert host.tenure is not None
        host.tenure.driver.lead_with(ReplicatedCoordinator(Coordinator(PLAN, policy())))
        host.tenure.driver.phase = Phase.RUNNING
        return host

    return make


@pytest.mark.parametrize("phase", [one for one in Phase if one is not Phase.REPLACED])
def test_a_run_is_over_for_others_when_everything_is_written(begin: Any, jump: Jump, phase: Phase) -> None:
    """Whoever has waited for it finds the whole log and the outcome in the store."""

    async def ask() -> tuple[str, str]:
        host = await begin()
        host.tenure.driver.phase = phase
        before = (await host.status(1.0))["phase"]
        host.tenure.driver.phase = Phase.OVER
        host._over.set()
        after = (await host.status(1.0))["phase"]
        await host.tenure.driver.run_log.close()
        return before, after

    assert jump(ask()) == ("ending" if phase is Phase.OVER else phase.value, "over")


def test_asking_waits_for_the_end(begin: Any, jump: Jump) -> None:
    """A long poll: it is answered as soon as the run is over, and at the latest after the time asked for."""

    async def ask() -> list[float]:
        clock = asyncio.get_running_loop().time
        host = await begin()
        asyncio.get_running_loop().call_later(5.0, host._over.set)
        times = []
        for wait_s in (2.0, 99.0, 99.0):
            await host.status(wait_s)
            times.append(clock())
        await host.tenure.driver.run_log.close()
        return times

    assert jump(ask()) == [2.0, 5.0, 5.0]


def test_what_is_over_or_replaced_does_not_begin_again(begin: Any, jump: Jump) -> None:
    async def enter() -> list[Phase]:
        tenure = (await begin()).tenure
        entered = []
        for phase in (Phase.RUNNING, Phase.STARTING, Phase.OVER, Phase.ENDING, Phase.REPLACED, Phase.OVER):
            tenure.driver.enter(phase)
            entered.append(tenure.driver.phase)
        await tenure.driver.run_log.close()
        return entered

    assert jump(enter()) == [Phase.RUNNING, Phase.RUNNING, Phase.OVER, Phase.OVER, Phase.REPLACED, Phase.REPLACED]


def test_who_does_not_lead_says_so(jump: Jump) -> None:
    """It may be a standby, or an actor that is only being made."""

    async def ask() -> dict[str, Any]:
        host = CoordinatorHost("run")
        for asked in (host.roles(), host.standing(), host.stop("told so"), host.deliver("server-0", b"")):
            with pytest.raises(PeerLost, match="coordinator is not at"):
                await asked
        return await host.status(0.0)

    assert jump(ask()) == {"phase": "standing by"}


def test_a_coordinator_that_hands_over_has_decided_its_last(leading: Any, jump: Jump) -> None:
    """What it decided meanwhile would be done, and the standby would not know of it."""

    async def hand_over() -> tuple[int, list[str]]:
        came: list[str] = []

        async def meanwhile() -> None:
            with pytest.raises(PeerLost, match="was replaced"):
                await host.deliver("server-0", encode([msg.Retiring("server-0")]))
            host.tenure.driver.feed(StopRequested("late"))
            came.append("handed over")

        standbys = SimpleNamespace(hand_over=meanwhile, close=lambda: came.append("said"), appoint=None, suspect=None)
        others = Nobody()
        others.close = lambda: came.append("silent")  # type: ignore[method-assign]
        host = await leading(others, standbys)
        before = host.tenure.driver.lead.handled
        await host._before_it_ends()
        return host.tenure.driver.lead.handled - before, came

    assert jump(hand_over()) == (0, ["silent", "silent", "handed over", "said"])


def test_a_copy_that_cannot_keep_its_state_is_told_while_it_lasts(leading: Any, jump: Jump) -> None:
    """Whoever looks at the run sees why it does not go on; its standby knows it, too."""

    async def tell() -> tuple[list[dict[str, Any]], list[Any]]:
        heard: list[Any] = []
        standbys = Nobody()
        standbys.tell = heard.append  # type: ignore[method-assign]
        host = await leading(standbys=standbys)
        await host.on_cold_trouble("server-0", "shard 0: the disk is full")
        incidents = (await host.status(0.0))["summary"]["incidents"]
        await host.tenure.driver.run_log.close()
        return incidents, heard

    incidents, heard = jump(tell())
    assert [(one["kind"], one["text"]) for one in incidents] == [("cold replica", "shard 0: the disk is full")]
    assert [one.record["kind"] for one in heard] == ["cold replica"]


class Broken(Nobody):
    """Cannot send for so many times."""

    def __init__(self, times: int) -> None:
        self._times = times
        self.sent: list[Any] = []

    def send(self, name: str, message: Any) -> None:
        if self._times:
            self._times -= 1
            raise RuntimeError("a fault of our own")
        self.sent.append(message)


class Leaving(Nobody):
    """Knows everybody, and notes who leaves by itself."""

    def __init__(self) -> None:
        self.left: list[tuple[str, str]] = []

    def heard(self, name: str) -> bool:
        return True

    def on_leave(self, name: str, reason: str) -> None:
        self.left.append((name, reason))


@pytest.mark.parametrize("reason", ["its process ends", "could not attach to a server"])
def test_the_worker_pool_learns_of_a_worker_that_leaves_by_itself(leading: Any, jump: Jump, reason: str) -> None:
    async def leave() -> list[tuple[str, str]]:
        around = Leaving()
        host = await leading(around)
        host.tenure.driver.inbox.take("worker-1", encode([msg.Leave("worker-1", reason)]))
        return around.left

    assert jump(leave()) == [("worker-1", reason)]


@pytest.mark.parametrize("times", [1, 9])
def test_what_fails_while_decisions_are_acted_on_ends_the_run(
    leading: Any, jump: Jump, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Not whoever happened to ask: it would take the error for the coordinator's end, and nobody would know why."""

    async def act() -> tuple[list[Any], list[Any]]:
        broken = Broken(times)
        host = await leading(broken)
        ended: list[Any] = []

        async def end(failure: Any) -> None:
            ended.append(failure)

        monkeypatch.setattr(host.tenure, "_end", end)
        host.tenure.driver.feed(Begin())
        host.tenure.driver.feed(msg.Join("worker-1", "tcp://10.0.0.1:2"))
        host.tenure.driver.feed(msg.Leave("worker-1", "told so"))
        await asyncio.sleep(0)
        host.tenure.driver.silence()
        notes = [one["text"] for one in host.tenure.driver.run_log.unwritten if one["kind"] == "note"]
        assert notes[0] == "in the coordinator's process: RuntimeError: a fault of our own"
        return ended, broken.sent

    (error,), sent = jump(act())
    assert isinstance(error, ClusterError)
    assert "acting on what the coordinator had decided failed (RuntimeError: a fault of our own)" in str(error)
    assert any(isinstance(one, msg.Stop) for one in sent) == (times == 1), "in good order, if that is possible"


class Worker(Nobody):
    """Those around a coordinator, with one worker whose way is free."""

    def __init__(self) -> None:
        self.kept: tuple[bytes, bytes] = b"", b""
        self.sent: list[Any] = []

    def heard(self, sender: str) -> bool:
        return sender == "w0"

    def has_heard_all(self, name: str) -> bool:
        return not self.sent

    def send(self, name: str, message: Any) -> None:
        if name == "w0":
            self.sent.append(message)

    def answer_again(self, name: str, said: bytes) -> bytes:
        return self.kept[1] if self.kept[0] == said else b""

    def note_answer(self, name: str, said: bytes, answer: bytes) -> None:
        self.kept = said, answer


def announcement(sequence: int, version: int) -> msg.Announce:
    figures = {"samples": 4, "loss": 0.5, "squared_norm": 1.0, "compute_s": 1.0, "pull_s": 0.0, "push_s": 0.0}
    return msg.Announce(member="w0", sequence=sequence, label=msg.Label((version,), (1,)), wait_s=0.0, **figures)


def test_a_release_comes_with_the_answer_and_again_with_the_answer_to_a_repeat(leading: Any, jump: Jump) -> None:
    """The first answer may be lost with its call; what is sent besides must not be overtaken by it."""

    async def talk() -> None:
        around = Worker()
        host = await leading(around)
        joined = host.take("w0", encode([msg.Join("w0", "here")]))
        assert joined is True
        kinds = [type(one) for one in around.sent]
        assert kinds == [msg.Welcome, msg.Release], "in this order, on one way"
        around.sent.clear()
        said = encode([announcement(1, 0)])
        (release,) = decode(host.take("w0", said))
        assert (type(release), release.sequence) == (msg.Release, 2)
        assert decode(host.take("w0", said)) == (release,)
        assert not any(isinstance(one, msg.Release) for one in around.sent)
        around.sent.append("something on its way")
        assert host.take("w0", encode([announcement(2, 1)])) is True
        assert isinstance(around.sent[-1], msg.Release)

    jump(talk())


class Workers(Worker):
    """Those around a coordinator, with two workers whose ways are free."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[str, tuple[bytes, bytes]] = {}

    def answer_again(self, name: str, said: bytes) -> bytes:
        before, answer = self.answered.get(name, (b"", b""))
        return answer if before == said else b""

    def note_answer(self, name: str, said: bytes, answer: bytes) -> None:
        self.answered[name] = said, answer

    def heard(self, sender: str) -> bool:
        return sender in {"w0", "w1"}

    def has_heard_all(self, name: str) -> bool:
        return True

    def send(self, name: str, message: Any) -> None:
        if name in {"w0", "w1"}:
            self.sent.append((name, message))


async def both_wait(leading: Any, around: Workers, **options: Any) -> CoordinatorHost:
    """Return a synchronous run of which both workers have been released."""
    host: CoordinatorHost = await leading(around, policy=BulkSynchronous, **options)
    for name in ("w0", "w1"):
        (released,) = decode(await host.deliver(name, encode([msg.Join(name, f"host of {name}")])))
        assert isinstance(released, msg.Release)
    around.sent.clear()
    return host


def announced_by(name: str) -> bytes:
    return encode([replace(announcement(1, 0), member=name)])


def test_a_worker_that_waits_for_another_is_answered_with_its_release(leading: Any, jump: Jump) -> None:
    """Announcing and being released is one round trip for each of them; a repeat is answered alike."""

    async def talk() -> None:
        around = Workers()
        host = await both_wait(leading, around)
        waits = asyncio.ensure_future(host.deliver("w0", announced_by("w0")))
        await asyncio.sleep(0)
        assert not waits.done()
        (last,) = decode(await host.deliver("w1", announced_by("w1")))
        (first,) = decode(await waits)
        assert [(type(one), one.sequence) for one in (first, last)] == [(msg.Release, 2)] * 2
        assert around.sent == []
        assert [decode(host.take(name, announced_by(name))) for name in ("w0", "w1")] == [(first,), (last,)]

    jump(talk())


def test_a_worker_is_released_by_the_ordinary_way_when_it_has_waited_for_long(leading: Any, jump: Jump) -> None:
    async def talk() -> None:
        around = Workers()
        host = await both_wait(leading, around)
        assert await host.deliver("w0", announced_by("w0")) is True, "what else it has to say must not wait"
        await host.deliver("w1", announced_by("w1"))
        assert [(name, type(one)) for name, one in around.sent] == [("w0", msg.Release)]

    jump(talk())


def test_where_transfers_are_planned_nobody_is_kept_waiting(leading: Any, jump: Jump) -> None:
    """A worker that sums the gradients of others has to say so."""

    async def talk() -> None:
        around = Workers()
        host = await both_wait(leading, around, fabric="any")
        assert host.take("w0", announced_by("w0")) is True

    jump(talk())


@pytest.mark.parametrize("end", ["fall_silent", "replaced"])
def test_a_coordinator_that_says_nothing_more_keeps_no_answer(leading: Any, jump: Jump, end: str) -> None:
    async def talk() -> None:
        host = await both_wait(leading, Workers())
        assert host.tenure is not None
        waits = asyncio.ensure_future(host.deliver("w0", announced_by("w0")))
        await asyncio.sleep(0)
        driver = host.tenure.driver
        driver.fall_silent() if end == "fall_silent" else driver.enter(Phase.REPLACED)
        await asyncio.sleep(0)
        assert waits.done()
        assert waits.result() is True

    jump(talk())


def test_within_a_process_no_answer_is_kept_for_a_repeat(leading: Any, jump: Jump) -> None:
    """None is lost there; what is said, and in which order, is the same."""

    async def talk() -> None:
        around = Worker()
        host = await leading(around)
        assert host.take("w0", (msg.Join("w0", "here"),)) is True
        assert [type(one) for one in around.sent] == [msg.Welcome, msg.Release]
        around.sent.clear()
        (release,) = decode(host.take("w0", (announcement(1, 0),)))
        assert (type(release), release.sequence) == (msg.Release, 2)
        assert around.kept == (b"", b"")

    jump(talk())
