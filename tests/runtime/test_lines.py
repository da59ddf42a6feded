"""Ordered delivery to one peer: everything, in order, until the peer is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from psplatform.core.protocol.messages import Stop
from psplatform.core.protocol.place_messages import CoordinatorAt
from psplatform.core.protocol.wire import decode, encode
from psplatform.errors import ProtocolError
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import OK, DirectCalls, Peer
from psplatform.runtime.comms.coordinator_line import CoordinatorLine
from psplatform.runtime.comms.lines import _MOST_WAITING, Line
from psplatform.runtime.timeouts import TIMEOUTS

Jump = Callable[[Any], Any]
PATIENCE_S = 30.0


def message(number: int) -> Stop:
    return Stop(number, "")


class ShardActor:
    """The peer at the other end, and what this side hears of it."""

    def __init__(self, network: Callable[..., Any], peer: Peer) -> None:
        self.batches: list[list[int]] = []
        self.senders: set[str] = set()
        self.tried: list[list[int]] = []
        self.lost: list[str] = []
        self.refused = 0
        self.failures = 0
        self.error: Exception = OSError("connection reset")
        self.known = True
        self.answers = False
        self.heard: list[int] = []
        self.hold: asyncio.Event | None = None
        self._network, self._peer = network(self._answer), peer

    def open(self, **options: Any) -> Line:
        return Line(
            self._network,
            self._peer,
            "worker-1",
            Background(),
            patience_s=PATIENCE_S,
            on_lost=self.lost.append,
            on_refused=self._count_refusal,
            on_answer=lambda answer: self.heard.append(answer.term),
            **options,
        )

    def _count_refusal(self) -> None:
        self.refused += 1

    async def _answer(self, method: str, sender: str, data: bytes) -> bool | bytes:
        numbers = [one.term for one in decode(data)]
        self.tried.append(numbers)
        if self.hold is not None:
            await self.hold.wait()
        if self.failures:
            self.failures -= 1
            raise self.error
        self.senders.add(sender)
        self.batches.append(numbers)
        return encode([message(-one) for one in numbers]) if self.answers else self.known


@pytest.fixture
def post(network: Callable[..., Any], peer: Peer) -> ShardActor:
    return ShardActor(network, peer)


def test_messages_arrive_in_the_order_they_were_sent(post: ShardActor, jump: Jump) -> None:
    async def talk() -> None:
        line = post.open()
        for number in range(5):
            line.send(message(number))
            await asyncio.sleep(number % 2)
        await line.flush(10)
        line.close()

    jump(talk())
    assert list(chain(*post.batches)) == [0, 1, 2, 3, 4]
    assert post.senders == {"worker-1"}


def test_what_waits_goes_out_in_one_call(post: ShardActor, jump: Jump) -> None:
    """A peer that is slow to answer gets fewer and larger deliveries, one at a time."""

    async def talk() -> None:
        post.hold = asyncio.Event()
        line = post.open()
        line.send(message(0))
        await asyncio.sleep(1)
        for number in (1, 2, 3):
            line.send(message(number))
        await asyncio.sleep(1)
        assert post.tried == [[0]]
        post.hold.set()
        await line.flush(10)
        line.close()

    jump(talk())
    assert post.batches == [[0], [1, 2, 3]]


def test_answers_come_back_with_the_acknowledgment(post: ShardActor, jump: Jump) -> None:
    """Of a call that fails they do not: it is made again."""

    async def talk() -> None:
        post.answers, post.failures = True, 1
        line = post.open()
        line.send(message(1))
        line.send(message(2))
        await line.flush(10)
        line.close()

    jump(talk())
    assert post.batches == [[1, 2]]
    assert post.heard == [-1, -2]
    assert post.refused == 0


def test_what_may_wait_goes_out_with_what_may_not(post: ShardActor, jump: Jump) -> None:
    async def talk() -> None:
        line = post.open()
        line.send(message(0), within_s=1.0)
        await asyncio.sleep(0.5)
        assert post.tried == []
        line.send(message(1))
        await asyncio.sleep(0.1)
        line.close()

    jump(talk())
    assert post.batches == [[0, 1]]


def test_what_may_wait_goes_out_in_time(post: ShardActor, jump: Jump) -> None:
    """Counted from the first that waits, and again after a delivery."""

    async def talk() -> list[float]:
        line, sent = post.open(), []
        for number in range(4):
            line.send(message(number), within_s=1.0)
            await asyncio.sleep(0.75)
            sent.append(len(post.batches))
        line.close()
        return sent

    assert jump(talk()) == [0, 1, 1, 2]
    assert post.batches == [[0, 1], [2, 3]]


def test_what_may_wait_goes_out_with_what_may_wait_less(post: ShardActor, jump: Jump) -> None:
    async def talk() -> None:
        line = post.open()
        line.send(message(0), within_s=2.0)
        line.send(message(1), within_s=0.5)
        line.send(message(2), within_s=1.0)
        await asyncio.sleep(0.4)
        assert post.batches == []
        await asyncio.sleep(0.2)
        line.close()

    jump(talk())
    assert post.batches == [[0, 1, 2]]


def test_many_that_may_wait_do_not(post: ShardActor, jump: Jump) -> None:
    async def talk() -> None:
        line = post.open()
        for number in range(_MOST_WAITING):
            line.send(message(number), within_s=1.0)
        await asyncio.sleep(0.1)
        line.close()

    jump(talk())
    assert post.batches == [list(range(_MOST_WAITING))]


def test_a_delivery_that_fails_is_repeated_unchanged(post: ShardActor, jump: Jump) -> None:
    """Receivers recognise repeats by what is in them, so nothing is added on the way."""

    async def talk() -> None:
        post.failures = 3
        line = post.open()
        line.send(message(1))
        line.send(message(2))
        await asyncio.sleep(0.01)
        line.send(message(3))
        await line.flush(10)
        line.close()

    jump(talk())
    assert post.tried == [[1, 2]] * 4 + [[3]]
    assert post.batches == [[1, 2], [3]]
    assert post.lost == []


def test_a_peer_that_stays_away_is_given_up_once(post: ShardActor, jump: Jump) -> None:
    """After so many seconds of failing in a row, with the last failure as the reason; then nothing is sent any more."""

    async def talk() -> None:
        post.failures = 10**9
        line = post.open()
        line.send(message(1))
        await asyncio.sleep(PATIENCE_S * 0.9)
        assert post.lost == []
        await asyncio.sleep(PATIENCE_S)
        tries = len(post.tried)
        line.send(message(2))
        await asyncio.sleep(PATIENCE_S)
        assert len(post.tried) == tries
        await line.flush(5)
        line.close()

    jump(talk())
    assert len(post.lost) == 1
    assert "is gone (connection reset)" in post.lost[0]


def test_a_peer_is_tried_again_however_long_the_first_try_took(
    network: Callable[..., Any], peer: Peer, jump: Jump
) -> None:
    """It may be this process that was stopped meanwhile."""
    heard: list[int] = []
    calls = 0

    class Silent:
        async def actor_execute(self, **_call: Any) -> None:
            await asyncio.sleep(99)

    def take(method: str, sender: str, data: bytes) -> bool:
        heard.extend(one.term for one in decode(data))
        return True

    async def talk() -> None:
        living = network(take)

        def connect(address: str) -> Any:
            nonlocal calls
            calls += 1
            return Silent() if calls == 1 else living(address)

        line = Line(connect, peer, "worker-1", Background(), patience_s=5.0, on_lost=pytest.fail)
        line.send(message(1))
        await line.flush(20)
        line.close()

    jump(talk())
    assert heard == [1]


def test_patience_begins_anew_with_each_delivery(post: ShardActor, jump: Jump) -> None:
    """Failures that are overcome do not add up."""

    async def talk() -> None:
        line = post.open()
        for number in range(20):
            post.failures = 6
            line.send(message(number))
            await line.flush(PATIENCE_S)
        line.close()

    jump(talk())
    assert post.lost == []
    assert list(chain(*post.batches)) == list(range(20))


def test_a_peer_that_raises_is_given_up(post: ShardActor, jump: Jump) -> None:
    """It answers, but not to what it is told: the same again would not help, and waiting in silence would hang."""

    async def talk() -> None:
        post.failures, post.error = 10**9, ProtocolError("undecodable message")
        line = post.open()
        line.send(message(1))
        await asyncio.sleep(1)
        line.close()

    jump(talk())
    assert len(post.lost) == 1
    assert "undecodable message" in post.lost[0]


def test_a_peer_that_does_not_know_this_side_refuses_it(post: ShardActor, jump: Jump) -> None:
    async def talk() -> None:
        post.known = False
        line = post.open()
        line.send(message(1))
        await line.flush(10)
        line.close()

    jump(talk())
    assert post.refused == 1
    assert post.lost == []


def test_an_idle_line_gives_a_sign_of_life(post: ShardActor, jump: Jump) -> None:
    """Empty deliveries, as often as was asked for."""

    async def rest() -> None:
        line = post.open(beat_s=2)
        await asyncio.sleep(9)
        line.close()

    jump(rest())
    assert post.batches == [[]] * 4


def test_a_line_without_a_beat_is_silent(post: ShardActor, jump: Jump) -> None:
    async def rest() -> None:
        line = post.open()
        await asyncio.sleep(1000)
        line.close()

    jump(rest())
    assert post.tried == []


def test_a_closed_line_sends_nothing_and_loses_nobody(post: ShardActor, jump: Jump) -> None:
    async def talk() -> None:
        line = post.open(beat_s=2)
        line.close()
        line.send(message(1))
        await asyncio.sleep(10)

    jump(talk())
    assert post.tried == []
    assert post.lost == []


def test_a_line_outlives_what_its_process_cancels(post: ShardActor, jump: Jump) -> None:
    """Where a signal ends a Dask worker, everything is cancelled before its actors have handed over."""

    async def end() -> None:
        post.hold = asyncio.Event()
        line = post.open()
        line.send(message(1))
        await asyncio.sleep(1)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        line.send(message(2))
        await asyncio.sleep(0)
        post.hold.set()
        await line.flush(10)
        line.close()

    jump(end())
    assert post.tried == [[1], [1], [2]]
    assert post.lost == []


def test_what_one_that_is_gone_has_not_acknowledged_goes_to_the_next(
    network: Callable[..., Any], peer: Peer, jump: Jump
) -> None:
    """At once: a call to a process that is stopped would last until its deadline."""
    heard: list[tuple[str, list[int]]] = []

    class Stopped:
        async def actor_execute(self, **_call: Any) -> None:
            await asyncio.sleep(99)

    async def move() -> float:
        loop = asyncio.get_running_loop()

        def take(method: str, sender: str, data: bytes) -> bool:
            heard.append(("next", [one.term for one in decode(data)]))
            return True

        living = network(take)
        line = Line(
            lambda address: living(address) if address == "tcp://next" else Stopped(),
            peer,
            "worker-1",
            Background(),
            patience_s=PATIENCE_S,
            on_lost=pytest.fail,
        )
        line.send(message(1))
        await asyncio.sleep(1)
        line.retarget(Peer("tcp://next", peer.key))
        await line.flush(9)
        line.close()
        return loop.time()

    assert jump(move()) < 2.0
    assert heard == [("next", [1])]


def test_a_peer_may_be_replaced_twice_at_once(network: Callable[..., Any], peer: Peer, jump: Jump) -> None:
    """The call to the first is still being given up when the second is known to be lost, too."""
    heard: list[str] = []

    async def answer(address: str, data: bytes) -> bool:
        if address != "tcp://last":
            await asyncio.sleep(99)
        heard.extend([address, *(one.term for one in decode(data))])
        return True

    async def move() -> None:
        line = Line(
            lambda address: network(lambda method, sender, data: answer(address, data))(address),
            peer,
            "worker-1",
            Background(),
            patience_s=PATIENCE_S,
            on_lost=pytest.fail,
        )
        line.send(message(1))
        await asyncio.sleep(1)
        for address, rounds in (("tcp://next", 1), ("tcp://last", 0)):
            line.retarget(Peer(address, peer.key))
            for _ in range(rounds):
                await asyncio.sleep(0)
        await line.flush(9)
        line.close()

    jump(move())
    assert heard == ["tcp://last", 1]


def test_flushing_an_idle_line_does_not_wait(post: ShardActor, jump: Jump) -> None:
    async def end() -> float:
        line = post.open()
        before = asyncio.get_running_loop().time()
        await line.flush(10)
        line.close()
        return asyncio.get_running_loop().time() - before

    assert jump(end()) == 0.0


def test_flushing_gives_up_at_its_limit(post: ShardActor, jump: Jump) -> None:
    """A peer that is gone does not hold up the end of a run."""

    async def end() -> float:
        post.failures = 10**9
        line = post.open()
        line.send(message(1))
        before = asyncio.get_running_loop().time()
        await line.flush(10)
        line.close()
        return asyncio.get_running_loop().time() - before

    assert jump(end()) == 10.0


# --- calls that can be sent at once ---


class AtOnce(DirectCalls):
    """A peer that calls reach at once, as long as that is possible."""

    def __init__(self, network: Callable[..., Any]) -> None:
        self.possible = True
        self.asked: list[tuple[list[int], Callable[[str, Any], None]]] = []
        self.given_up = 0
        self.slowly: list[list[int]] = []
        self._slow = network(self._take_slowly)

    def __call__(self, address: str) -> AtOnce:
        return self

    def begin(
        self, actor: str, function: str, arguments: tuple[Any, ...], done: Callable[[str, Any], None]
    ) -> AtOnce | None:
        if not self.possible:
            return None
        assert function == "deliver"
        self.asked.append(([one.term for one in decode(arguments[1])], done))
        return self

    def answer(self, status: str = OK, value: Any = True) -> None:
        self.asked[-1][1](status, value)

    def give_up(self) -> None:
        self.given_up += 1

    async def actor_execute(self, **call: Any) -> Any:
        return await self._slow("tcp://anywhere").actor_execute(**call)

    def _take_slowly(self, method: str, sender: str, data: bytes) -> bool:
        self.slowly.append([one.term for one in decode(data)])
        return True

    @property
    def batches(self) -> list[list[int]]:
        return [batch for batch, _ in self.asked]


@pytest.fixture
def at_once(network: Callable[..., Any]) -> AtOnce:
    return AtOnce(network)


def open_to(at_once: AtOnce, peer: Peer, **options: Any) -> Line:
    options = {"patience_s": PATIENCE_S, "on_lost": pytest.fail} | options
    return Line(at_once, peer, "worker-1", Background(), **options)


def test_what_can_be_sent_at_once_is_sent_in_the_next_round_of_the_loop(
    at_once: AtOnce, peer: Peer, jump: Jump
) -> None:
    """With what is said until then; what is said later waits for the answer."""

    async def talk() -> None:
        heard: list[int] = []
        line = open_to(at_once, peer, on_answer=lambda answer: heard.append(answer.term))
        line.send(message(1))
        line.send(message(2))
        await asyncio.sleep(0)
        assert at_once.batches == [[1, 2]]
        line.send(message(3))
        await asyncio.sleep(0)
        assert at_once.batches == [[1, 2]]
        at_once.answer(value=encode([message(-1)]))
        assert heard == [-1]
        await asyncio.sleep(0)
        assert at_once.batches == [[1, 2], [3]]
        at_once.answer()
        await line.flush(1.0)
        line.close()

    jump(talk())
    assert at_once.slowly == []
    assert at_once.given_up == 0


@pytest.mark.parametrize("status", ["error", "the connection was closed"])
def test_what_was_not_taken_at_once_is_insisted_on(at_once: AtOnce, peer: Peer, jump: Jump, status: str) -> None:
    async def talk() -> None:
        line = open_to(at_once, peer)
        line.send(message(1))
        await asyncio.sleep(0)
        line.send(message(2))
        at_once.answer(status, None)
        await asyncio.sleep(1)
        assert at_once.slowly == [[1]]
        assert at_once.batches == [[1], [2]]
        at_once.answer()
        line.close()

    jump(talk())


def test_what_is_not_answered_in_time_is_insisted_on(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        line = open_to(at_once, peer)
        line.send(message(1))
        await asyncio.sleep(TIMEOUTS.delivery_s - 0.1)
        assert at_once.slowly == []
        await asyncio.sleep(0.2)
        assert at_once.slowly == [[1]]
        line.close()

    jump(talk())
    assert at_once.given_up == 1


def test_what_one_that_is_gone_has_not_answered_goes_to_the_next_at_once(
    at_once: AtOnce, network: Callable[..., Any], peer: Peer, jump: Jump
) -> None:
    heard: list[int] = []

    async def move() -> None:
        living = network(lambda method, sender, data: heard.extend(one.term for one in decode(data)) or True)
        line = open_to(at_once, peer)
        line._connect = lambda address: living(address) if address == "tcp://next" else at_once
        line.send(message(1))
        await asyncio.sleep(1)
        line.retarget(Peer("tcp://next", peer.key))
        await asyncio.sleep(0.1)
        line.close()

    jump(move())
    assert heard == [1]
    assert at_once.given_up == 1


def test_a_closed_line_hears_no_answer(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    async def talk() -> None:
        line = open_to(at_once, peer, beat_s=1.0)
        line.send(message(1))
        await asyncio.sleep(0)
        line.send(message(2))
        line.close()
        await asyncio.sleep(PATIENCE_S)

    jump(talk())
    assert at_once.batches == [[1]]
    assert at_once.given_up == 1
    assert at_once.slowly == []


def test_an_answer_that_cannot_be_read_ends_it(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    lost: list[str] = []

    async def talk() -> None:
        line = open_to(at_once, peer, on_lost=lost.append)
        line.send(message(1))
        await asyncio.sleep(0)
        at_once.answer(value=b"\xc1")
        line.send(message(2))
        await asyncio.sleep(PATIENCE_S)
        line.close()

    jump(talk())
    assert "undecodable message" in lost[0]
    assert at_once.batches == [[1]]


def test_a_line_rests_only_when_nothing_was_delivered(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    """What was said is a sign of life itself."""

    async def talk() -> None:
        line = open_to(at_once, peer, beat_s=2.0)
        for number in range(5):
            line.send(message(number))
            await asyncio.sleep(0)
            at_once.answer()
            await asyncio.sleep(1.5)
        assert at_once.batches == [[number] for number in range(5)]
        await asyncio.sleep(0.6)
        assert at_once.batches[5:] == [[]]
        line.close()

    jump(talk())


def test_what_cannot_be_sent_ends_the_line_with_a_reason(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    lost: list[str] = []
    told: list[str] = []

    async def talk() -> None:
        line = Line(at_once, peer, "worker-1", Background(told.append), patience_s=PATIENCE_S, on_lost=lost.append)
        line.send(Stop(1, "\ud800"))
        await asyncio.sleep(0.1)
        line.send(message(2))
        await line.flush(1.0)
        line.close()

    jump(talk())
    assert "UnicodeEncodeError" in told[0]
    assert "cannot be sent" in lost[0]
    assert at_once.batches == []


def test_a_closed_line_turns_to_nobody(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    """What it had not delivered must not be a sign of life for the next."""

    async def talk() -> None:
        line = open_to(at_once, peer)
        line.send(message(1))
        await asyncio.sleep(0)
        line.close()
        line.retarget(Peer("tcp://next", peer.key))
        await asyncio.sleep(PATIENCE_S)

    jump(talk())
    assert at_once.slowly == []


def test_a_try_at_once_that_was_not_answered_counts(at_once: AtOnce, peer: Peer, jump: Jump) -> None:
    """A silent peer is given up no later than where there is no such way."""
    lost_at: list[float] = []

    async def talk() -> None:
        loop = asyncio.get_running_loop()

        async def silence(**call: Any) -> Any:
            await asyncio.sleep(99)

        at_once.actor_execute = silence  # type: ignore[method-assign]
        line = open_to(at_once, peer, patience_s=5.0, on_lost=lambda reason: lost_at.append(loop.time()))
        line.send(message(1))
        await asyncio.sleep(30)
        line.close()

    jump(talk())
    assert len(lost_at) == 1
    assert lost_at[0] < 11.0


def test_an_actor_turns_to_the_coordinator_of_the_highest_term(post: ShardActor, peer: Peer, jump: Jump) -> None:
    """News of one that has taken over come late where an actor, or the one that tells it, was stopped meanwhile."""

    async def turn() -> list[tuple[bool, str, int]]:
        one = CoordinatorLine(peer)
        one.send(message(1))  # nothing is open yet
        turned = []
        for opened, term, place in ((False, 3, "tcp://third"), (True, 2, "tcp://second"), (True, 5, "tcp://fifth")):
            if opened and not one.is_open:
                one.open(post.open())
            turned.append((one.turn_to(CoordinatorAt(term, place, "key")), one.peer.address, one.term))
        one.send(message(2))
        await one.flush(5.0)
        one.close()
        return turned

    assert jump(turn()) == [(True, "tcp://third", 3), (False, "tcp://third", 3), (True, "tcp://fifth", 5)]
    assert post.batches == [[2]]
