"""What a coordinator's process tells programs, and what becomes of it when it ends or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from psplatform.core.coordination import Coordinator
from psplatform.core.plan import Plan, Stop
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import Begin, StopRequested
from psplatform.core.protocol.wire import encode
from psplatform.core.supervision.replicated_coordinator import ReplicatedCoordinator
from psplatform.errors import ClusterError
from psplatform.jobs.schedules import Constant
from psplatform.policies.asp import Asynchronous
from psplatform.runtime.actors.coordinator_host import CoordinatorHost
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.store.run_log import RunLog

Jump = Callable[[Any], Any]


@pytest.mark.parametrize("phase", ["starting", "running", "ending", "over"])
def test_a_run_is_over_for_others_when_everything_is_written(tmp_path: Path, jump: Jump, phase: str) -> None:
    """Whoever has waited for it finds the whole log and the outcome in the store."""

    async def ask() -> tuple[str, str]:
        host = CoordinatorHost("run")
        host.run_log = await RunLog.open(str(tmp_path), 1)
        host.phase = phase
        before = (await host.status(1.0))["phase"]
        host.phase = "over"
        host._over.set()
        after = (await host.status(1.0))["phase"]
        await host.run_log.close()
        return before, after

    assert jump(ask()) == ("ending" if phase == "over" else phase, "over")


def test_asking_waits_for_the_end(tmp_path: Path, jump: Jump) -> None:
    """A long poll: it is answered as soon as the run is over, and at the latest after the time asked for."""

    async def ask() -> list[float]:
        clock = asyncio.get_running_loop().time
        host = CoordinatorHost("run")
        host.run_log = await RunLog.open(str(tmp_path), 1)
        asyncio.get_running_loop().call_later(5.0, host._over.set)
        times = []
        for wait_s in (2.0, 99.0, 99.0):
            await host.status(wait_s)
            times.append(clock())
        await host.run_log.close()
        return times

    assert jump(ask()) == [2.0, 5.0, 5.0]


class Nobody:
    """Stands for those around a coordinator, and does nothing for it."""

    live = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


@pytest.fixture
def leading(tmp_path: Path) -> Callable[..., Any]:
    """Make the host of a coordinator, with nobody around it but those that are given."""

    async def make(others: Any = None, standbys: Any = None) -> CoordinatorHost:
        host: Any = CoordinatorHost("run")
        host.run_log = await RunLog.open(str(tmp_path), 1)
        host._loop = asyncio.get_running_loop()
        host.peer = Peer("tcp://10.0.0.1:1234", "coordinator")
        host.copies = host.worker_pool = others or Nobody()
        host.standbys = standbys or Nobody()
        host.election = host.sealer = Nobody()
        plan = Plan("run", workers=1, shards=1, samples=8, batch_size=4, stop=Stop(updates=9), schedule=Constant())
        host._lead_with(ReplicatedCoordinator(Coordinator(plan, Asynchronous())))
        host.phase = "running"
        return cast(CoordinatorHost, host)

    return make


def test_a_coordinator_that_hands_over_has_decided_its_last(leading: Any, jump: Jump) -> None:
    """What it decided meanwhile would be done, and the standby would not know of it."""

    async def hand_over() -> tuple[int, list[str]]:
        came: list[str] = []

        async def meanwhile() -> None:
            with pytest.raises(PeerLost, match="was replaced"):
                await host.deliver("server-0", encode([msg.Retiring("server-0")]))
            host.feed(StopRequested("late"))
            came.append("handed over")

        standbys = SimpleNamespace(hand_over=meanwhile, close=lambda: came.append("said"), appoint=None, suspect=None)
        others = Nobody()
        others.close = lambda: came.append("silent")  # type: ignore[method-assign]
        host = await leading(others, standbys)
        before = host.lead.handled
        await host._retire()
        return host.lead.handled - before, came

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
        await host.run_log.close()
        return incidents, heard

    incidents, heard = jump(tell())
    assert [(one["kind"], one["text"]) for one in incidents] == [("cold replica", "shard 0: the disk is full")]
    assert [one["record"]["kind"] for one in heard] == ["cold replica"]


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

        monkeypatch.setattr(host, "_end", end)
        host.feed(Begin())
        host.feed(msg.Join("worker-1", "tcp://10.0.0.1:2"))
        host.feed(msg.Leave("worker-1", "told so"))
        await asyncio.sleep(0)
        host.silence()
        notes = [one["text"] for one in host.run_log.unwritten if one["kind"] == "note"]
        assert notes[0] == "in the coordinator's process: RuntimeError: a fault of our own"
        return ended, broken.sent

    (error,), sent = jump(act())
    assert isinstance(error, ClusterError)
    assert "acting on what the coordinator had decided failed (RuntimeError: a fault of our own)" in str(error)
    assert any(isinstance(one, msg.Stop) for one in sent) == (times == 1), "in good order, if that is possible"
