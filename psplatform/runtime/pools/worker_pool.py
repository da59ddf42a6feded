"""The gradient workers and the evaluator of a run as actors on a Dask cluster: made, addressed, watched and let go of.

Which process gets which of these roles, and what replaces one that is lost, `psplatform.core.supervision.workers`
decides; here it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from psplatform.core.coordination.shards.state import ShardState
from psplatform.core.protocol.effects import Evaluate, Redirect, SaveModel
from psplatform.core.protocol.events import RunFailed
from psplatform.core.protocol.messages import Moved, StateRequest
from psplatform.core.protocol.names import first_server
from psplatform.core.protocol.place_messages import ActorAt
from psplatform.core.supervision.decisions import (
    EVALUATOR,
    WORKER,
    AskOfDeath,
    AwaitWaking,
    Decision,
    Examine,
    LetGo,
    Note,
    Part,
    ProcessesCame,
    ProcessLeft,
    Report,
    Rules,
    StartEvaluator,
    StartWorker,
)
from psplatform.core.supervision.placement import Placement
from psplatform.core.supervision.workers import WorkerSupervisor
from psplatform.errors import PsplatformError
from psplatform.runtime.actors.coordinator.process import Employer
from psplatform.runtime.actors.evaluator_host import EvaluatorHost
from psplatform.runtime.actors.worker.host import WorkerHost
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.pools.cluster_watch import ActorsBeside, ClusterWatch
from psplatform.runtime.pools.fleet import Fleet
from psplatform.runtime.pools.shard_pool import DaskShardPool
from psplatform.runtime.pools.worker_actor import WorkerActor, why_not_started
from psplatform.runtime.timeouts import TIMEOUTS


class WorkerPoolHost(Employer, Protocol):
    """What the worker pool may ask of the coordinator's process, beside what every employer of actors may.

    Attributes
    ----------
    servers_made
        Set when every server's actor was made.
    """

    servers_made: asyncio.Event
    copies: DaskShardPool

    @property
    def runs(self) -> bool:
        """Whether the run has begun and is not ending: as long as it is so, workers are placed."""

    @property
    def live(self) -> int:
        """Number of live workers."""

    @property
    def standbys(self) -> ActorsBeside:
        """The standbys' side."""


class _Around:
    """What a supervisor of gradient workers asks of the rest of the run."""

    def __init__(self, host: WorkerPoolHost, fleet: Fleet) -> None:
        self._host, self._fleet = host, fleet
        self.next_name = fleet.next_name

    @property
    def runs(self) -> bool:
        return self._host.runs

    @property
    def home(self) -> str:
        return self._host.peer.address

    @property
    def copies(self) -> Collection[str]:
        return self._host.copies.addresses

    @property
    def left_out(self) -> Collection[str]:
        return self._fleet.left_out


class EvaluatorOrders:
    """What the evaluator is to do, and which servers it asks: kept for the next while there is none.

    Parameters
    ----------
    place_of
        Returns where a copy of a shard is, if it is a process.
    find
        Returns the evaluator, if there is one.

    Attributes
    ----------
    serving
        By shard, the copy that serves it and its epoch.
    """

    def __init__(self, place_of: Callable[[str], ActorAt | None], find: Callable[[], WorkerActor | None]) -> None:
        self._place_of, self._find = place_of, find
        self._orders: list[Evaluate | SaveModel] = []
        self.serving: list[tuple[str, int]] = []

    def order(self, order: Evaluate | SaveModel) -> None:
        """Ask the evaluator, as soon as there is one."""
        if not self._tell(order):
            self._orders.append(order)

    def redirect(self, effect: Redirect) -> None:
        """Let the evaluator ask the shard's new server."""
        self.serving[effect.shard] = effect.copy, effect.epoch
        self._tell_of(effect.shard)

    def hand_over(self) -> None:
        """Tell the evaluator, which has just opened, what has changed since it was made, and what it is to do."""
        for shard in range(len(self.serving)):
            self._tell_of(shard)
        for order in self._orders:
            self._tell(order)
        self._orders = []

    def clear(self) -> None:
        """Forget what the evaluator was to do: the coordinator gives those orders again that it still wants."""
        self._orders = []

    def _tell_of(self, shard: int) -> None:
        copy, epoch = self.serving[shard]
        place = self._place_of(copy)
        if place is not None:
            self._tell(place)
            self._tell(Moved(0, shard, epoch, copy))

    def _tell(self, message: Any) -> bool:
        actor = self._find()
        if actor is None or actor.line is None:
            return False
        actor.line.send(message)
        return True


class DaskWorkerPool:
    """Does what the supervisor of gradient workers and evaluator decides, and tells it what comes of that."""

    def __init__(self, host: WorkerPoolHost, fleet: Fleet) -> None:
        self._host = host
        self._fleet = fleet
        program = host.program
        rules = Rules(
            workers=program.plan.workers,
            most=program.plan.max_workers,
            lease_s=program.worker_lease_s,
            deserted_s=TIMEOUTS.deserted_s,
            share_after_s=TIMEOUTS.share_after_s,
            replace_after_s=TIMEOUTS.replace_after_s,
        )
        self._supervisor = WorkerSupervisor(rules, _Around(host, fleet), host.unavailable)
        self._actors: dict[str, WorkerActor] = {}
        self._orders = EvaluatorOrders(host.copies.place_of, lambda: self._actors.get(self._supervisor.evaluator))
        self._watch = watch = ClusterWatch(host, fleet, self._supervisor, self._execute)
        self._background = host.new_background()
        self._now = asyncio.get_running_loop().time
        do = self._background.do
        self._execute_by_kind: dict[type[Decision], Callable[[Any], object]] = {
            StartWorker: lambda one: self._start(WORKER, one.name, one.address),
            StartEvaluator: lambda one: self._start(EVALUATOR, one.name, one.address),
            Examine: lambda one: watch.examine(one.process),
            LetGo: lambda one: self._let_go(self._actors.pop(one.name)),
            AskOfDeath: watch.ask_of_death,
            AwaitWaking: lambda one: do(self._actors[one.name].await_waking(host)),
            Report: lambda one: host.feed(one.event),
            Note: lambda one: watch.note(one.text),
            ProcessLeft: watch.pass_on,
            ProcessesCame: lambda one: host.on_processes_changed(),
        }

    # --- at the start ---

    def begin(self, placement: Placement) -> None:
        """Start the evaluator and the gradient workers, and watch the cluster from now on.

        They load what they need while the servers do; they join when the servers are ready.
        """
        self._orders.serving = [(first_server(shard), 1) for shard in range(len(placement.servers))]
        self._execute(self._supervisor.begin(placement))
        self._watch.begin()

    @property
    def ready(self) -> tuple[int, int]:
        """How many of the gradient workers placed at the start are ready, and how many are there."""
        there = len(self._supervisor.workers)
        return there - len(self._supervisor.missing), there

    async def assembled(self, limit_s: float) -> None:
        """Wait until every gradient worker placed at the start is ready or gone, for at most `limit_s`."""
        deadline = self._now() + limit_s
        while self._supervisor.missing and self._now() < deadline:  # noqa: ASYNC110  several can end the wait
            await asyncio.sleep(TIMEOUTS.leave_look_s)

    def adopt(self, known: Mapping[str, tuple[str, Peer]], shards: Sequence[ShardState], joined: set[str]) -> None:
        """Go on with the workers and the evaluator that a coordinator before has made.

        Parameters
        ----------
        joined
            The workers that have joined; others may still be opening.
        """
        self._orders.serving = [(one.server, one.epoch) for one in shards]
        workers = {name: peer.address for name, (part, peer) in known.items() if part == WORKER}
        evaluators = [(name, peer.address) for name, (part, peer) in known.items() if part == EVALUATOR]
        self._supervisor.adopt(workers, evaluators[-1] if evaluators else None, self._now())
        for name, (_, peer) in known.items():
            actor = WorkerActor(WORKER if name in workers else EVALUATOR, name, peer.address, peer)
            if actor.part == EVALUATOR and name != self._supervisor.evaluator:
                self._background.do(actor.retire(self._fleet, self._host))  # it was being let go of
                continue
            self._actors[name] = actor
            self._background.do(self._fleet.meet(peer))
            if actor.part == WORKER and name not in joined:
                self._background.do(self._open_again(actor, peer))
            else:
                self._follow_up(actor, peer)
        self._watch.begin()

    def _follow_up(self, actor: WorkerActor, peer: Peer) -> None:
        actor.connect(self._host, peer, partial(self._on_lost, actor)).send(self._host.whereabouts())
        self._supervisor.hears(actor.name, self._now())

    async def _open_again(self, actor: WorkerActor, peer: Peer) -> None:
        try:
            await self._fleet.open(peer)
        except PsplatformError as error:
            self._on_lost(actor, str(error))
            return
        if self._actors.get(actor.name) is actor:
            self._follow_up(actor, peer)
            self.send(actor.name, StateRequest(self._host.term))  # only the lost one may have welcomed it

    # --- what the coordinator's host asks ---

    @property
    def addresses(self) -> set[str]:
        """Processes with a gradient worker."""
        return self._supervisor.addresses

    def directory(self) -> dict[str, tuple[str, Peer]]:
        """Return what each of them is, and where, by name."""
        return {one.name: (one.part, one.peer) for one in self._actors.values() if one.peer is not None}

    def place_of(self, name: str) -> ActorAt | None:
        """Return where a gradient worker is, or ``None`` if it is gone."""
        actor = self._actors.get(name)
        if actor is None or actor.peer is None:
            return None
        return ActorAt(name, actor.peer.address, actor.peer.key, part=actor.part)

    def redirect(self, effect: Redirect) -> None:
        """Let the evaluator ask the shard's new server."""
        self._orders.redirect(effect)

    def heard(self, sender: str) -> bool:
        """Take a sign of life; return whether the sender belongs to the run."""
        return self._supervisor.hears(sender, self._now())

    def send(self, name: str, message: Any) -> None:
        """Send to a gradient worker or the evaluator; to one that is gone, nothing."""
        actor = self._actors.get(name)
        if actor is not None and actor.line is not None:
            actor.line.send(message)

    def has_heard_all(self, name: str) -> bool:
        """Whether a gradient worker has everything that was sent to it."""
        actor = self._actors.get(name)
        return actor is not None and actor.line is not None and actor.line.is_idle

    def answer_again(self, name: str, said: bytes) -> bytes:
        """Return what a gradient worker was answered to this, if it asks again because that was lost; else nothing."""
        asked, answer = self._actors[name].answered if name in self._actors else (b"", b"")
        return answer if asked == said else b""

    def note_answer(self, name: str, said: bytes, answer: bytes) -> None:
        """Keep what a gradient worker is answered to this until it is answered to something else."""
        if name in self._actors:
            self._actors[name].answered = said, answer

    def introduce(self, place: ActorAt) -> None:
        """Let every gradient worker attach to a new copy of a shard, which it then need not do when that takes over."""
        for name in self._supervisor.workers:
            self.send(name, place)

    def order(self, order: Evaluate | SaveModel) -> None:
        """Ask the evaluator, as soon as there is one."""
        self._orders.order(order)

    def dismiss(self, name: str, reason: str) -> None:
        """Let go of a gradient worker, and look for another."""
        self._execute(self._supervisor.dismiss(name))

    def on_leave(self, name: str, reason: str) -> None:
        """Look for another in the place of a gradient worker that leaves by itself."""
        self._execute(self._supervisor.on_leave(name, reason))

    def on_process_ended(self, address: str, reason: str) -> None:
        """Report the gradient workers and the evaluator of a process that is certain to have ended."""
        self._execute(self._supervisor.on_process_ended(address, reason))

    def fill(self) -> None:
        """Look for gradient workers in the place of those that are missing."""
        self._execute(self._supervisor.fill())

    async def disband(self, limit_s: float, but: Collection[Peer] = ()) -> None:
        """Wait for the workers to leave, for at most `limit_s`, then close every actor that is left but those."""
        deadline = self._now() + limit_s
        while self._host.live and self._now() < deadline:  # noqa: ASYNC110  the core counts members, nobody signals
            await asyncio.sleep(TIMEOUTS.leave_look_s)
        self.close()
        await self._fleet.close_all(but)

    def close(self) -> None:
        """Say nothing more to anybody."""
        self._watch.close()
        self._background.close()
        for actor in self._actors.values():
            if actor.line is not None:
                actor.line.close()

    # --- what is decided ---

    def _execute(self, decisions: Iterable[Decision]) -> None:
        for one in decisions:
            self._execute_by_kind[type(one)](one)

    def _start(self, part: Part, name: str, address: str) -> None:
        actor = self._actors[name] = WorkerActor(part, name, address)
        self._background.do(self._open_worker(actor) if part == WORKER else self._open_evaluator(actor))

    async def _open_worker(self, actor: WorkerActor) -> None:
        try:
            peer = await actor.make(self._fleet, self._host, WorkerHost, self._host.copies.directory())
            actor.connect(self._host, peer, partial(self._on_lost, actor))
            await self._host.servers_made.wait()
            await self._fleet.open(peer)
        except PeerLost as error:
            if self._actors.pop(actor.name, None) is not None:
                self._background.do(actor.retire(self._fleet, self._host))
            self._execute(self._supervisor.on_not_started(actor.name, error))
        except Exception as error:  # noqa: BLE001  the seam where what an actor raises ends the run
            self._host.feed(RunFailed(why_not_started(error, actor)))

    async def _open_evaluator(self, actor: WorkerActor) -> None:
        if await self._fleet.lack(actor.address):
            await asyncio.sleep(TIMEOUTS.cluster_look_s)  # without a scheduler each question fails at once
            self._execute(self._supervisor.on_evaluator_lacking(actor.name))
            return
        try:
            arguments = self._orders.serving, self._host.copies.directory()
            peer = await actor.make(self._fleet, self._host, EvaluatorHost, *arguments)
            await self._host.servers_made.wait()
            await self._fleet.open(peer)
        except PeerLost as error:
            await asyncio.sleep(TIMEOUTS.cluster_look_s)
            self._on_lost(actor, str(error))
            return
        except Exception as error:  # noqa: BLE001  the seam where what an actor raises ends the run
            self._host.feed(RunFailed(why_not_started(error, actor)))
            return
        if self._actors.get(actor.name) is not actor:
            return  # it was let go of while it opened, and what it was to do is for the next
        actor.connect(self._host, peer, partial(self._on_lost, actor))
        self._orders.hand_over()

    def _on_lost(self, actor: WorkerActor, reason: str) -> None:
        lose = self._supervisor.on_lost if actor.part == WORKER else self._supervisor.on_evaluator_lost
        self._execute(lose(actor.name, reason))

    def _let_go(self, actor: WorkerActor) -> None:
        if actor.part == EVALUATOR:
            self._orders.clear()
        self._background.do(actor.retire(self._fleet, self._host))
