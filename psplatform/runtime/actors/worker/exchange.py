"""What a worker computes with, and what carries its parameters and gradients to and from other processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

from psplatform.core.policy import Scope
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.messages import Pulled
from psplatform.core.protocol.names import first_server
from psplatform.core.workers.session import WorkerSession
from psplatform.errors import ConfigurationError
from psplatform.nodes.worker import WorkerNode
from psplatform.runtime.actors.worker.computing import Computing
from psplatform.runtime.actors.worker.gradients import SlabGradients
from psplatform.runtime.actors.worker.sums import SlabSums
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Connect, Peer
from psplatform.runtime.dataplane.gradients.gradient_buffers import Slab
from psplatform.runtime.dataplane.gradients.pushing import Pushes
from psplatform.runtime.dataplane.pulls.content import Vectors
from psplatform.runtime.dataplane.pulls.devices import DeviceParameters, updates_on
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.dataplane.pulls.parameters import BorrowedParameters, Parameters
from psplatform.runtime.dataplane.pulls.relaying import ProcessRelaying
from psplatform.runtime.dataplane.replicas.replica_feed import NoReplicaFeed, ReplicaFeed
from psplatform.runtime.dataplane.segments import sweep
from psplatform.runtime.dataplane.transports import COMMS, TRANSPORTS, Transport
from psplatform.runtime.program import Program, choose_device
from psplatform.tasks.randomness import OWN_PROCESS, belong_to_tasks
from psplatform.tensors.compression import packing_of
from psplatform.tensors.layout import Layout
from psplatform.tensors.vectors import size_bytes

_LARGE_BYTES: Final = 1 << 20
"""Of a model that takes longer to copy than it takes to look whether the copy may be left out."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """What a worker computes with.

    Attributes
    ----------
    transport
        Opens what servers show.
    slab
        Where gradients lie.
    parameters
        What they are computed on.
    computing
        The thread that computes them.
    per_block
        Whether they are merged block by block.
    """

    layout: Layout
    transport: Transport
    slab: Slab
    parameters: Parameters
    computing: Computing
    per_block: bool

    @classmethod
    def build(cls, program: Program, deliver: Callable[[Any], None], closing: ExitStack) -> Self:
        """Open the task and take the memory, which `closing` gives back; `deliver` takes what is computed.

        Raises
        ------
        UserCodeError
            If the user's code raises while the task is opened.
        ConfigurationError
            If the device has no room.
        """
        if program.torch_threads is not None:
            torch.set_num_threads(program.torch_threads)
        if OWN_PROCESS in os.environ:
            belong_to_tasks()
        device = choose_device(program.device)
        workspace, layout = program.open(device)
        sweep(program.run, "slab")
        per_block = program.policy.traits.scope is Scope.BLOCK
        transport = TRANSPORTS[program.transport]
        # Where nothing may be lacking, servers wait for their replicas, and the slab is not written over before.
        late = program.plan.protection is not None and program.plan.from_workers and program.plan.protection.bound > 0
        # Block by block a worker goes on before every server has read the slab: each gets a copy of its own.
        slab = (COMMS if per_block else transport).slab(layout, program.run, with_copy=late)
        closing.callback(sweep, program.run)
        closing.callback(slab.remove)
        try:
            parameters = _parameters_on(device, program, layout, transport)
            closing.callback(parameters.close)
            updates = updates_on(layout, device, slab.vectors)
        except torch.OutOfMemoryError as error:
            text = f"parameters and gradients find no room on {device}, beside what is there already"
            remedy = "let fewer workers share it, take a smaller model, or the device cpu"
            raise ConfigurationError(f"{text}; {remedy}", field="device") from error
        closing.callback(updates.close)
        computing = Computing(program, workspace, layout, parameters, updates, deliver)
        closing.callback(computing.close)
        return cls(layout, transport, slab, parameters, computing, per_block)


def _parameters_on(device: torch.device, program: Program, layout: Layout, transport: Transport) -> Parameters:
    if device.type != "cpu":
        return DeviceParameters(layout, device)
    stays = program.policy.traits.awaits_all and transport.lends
    if stays and layout.shards == 1 and size_bytes(layout) >= _LARGE_BYTES:
        return BorrowedParameters(layout)
    return Parameters(layout, whole=program.policy.traits.pull.fraction == 1)


class WorkerExchange:
    """What carries parameters and gradients between one worker, the copies of shards, and other workers.

    Parameters
    ----------
    session
        Names the server of each shard.
    peers
        The copies of shards, by name.
    workers
        Where other workers are, by name, as far as this one was told.
    deliver
        Takes the answer to a pull once its content is in place.
    feed
        Takes what comes of sums.
    new_background
        Makes what waits for others.
    closing
        Closes what is made here.

    Attributes
    ----------
    sums
        Sends gradients to be summed, and sums those of others, where that is done.
    relaying
        Hands parameters on to other workers, where that is done.
    """

    def __init__(
        self,
        program: Program,
        connect: Connect,
        bench: Workbench,
        session: WorkerSession,
        *,
        peers: Mapping[str, Peer],
        workers: Mapping[str, Peer],
        deliver: Callable[[Pulled], None],
        feed: Callable[[Any], None],
        new_background: Callable[[], Background],
        closing: ExitStack,
    ) -> None:
        member, layout, slab = session.member, bench.layout, bench.slab
        self._bench, self._session = bench, session
        self._background = background = new_background()
        closing.callback(background.close)
        ways = member, slab.name, peers, bench.parameters, session.expects, deliver, bench.transport
        self._fetcher = fetcher = Fetcher(connect, layout, *ways, new_background(), slow_s=program.slow_s)
        closing.callback(fetcher.close)
        places, packing = (connect, layout, member), packing_of(program.compression)

        def make_pushes(vectors: Vectors) -> Pushes:
            return Pushes(*places, vectors, fetcher.peers, session.server_of, background, packing=packing)

        self._pushes = make_pushes(slab.vectors)
        self._replica_feed = (
            ReplicaFeed(*places, slab, fetcher, background, packing=packing)
            if program.plan.from_workers
            else NoReplicaFeed()
        )
        self._gradients: SlabGradients | None = None
        self.sums: SlabSums | None = None
        self.relaying: ProcessRelaying | None = None
        if program.fabric is not None and program.fabric.aggregators:
            kept = layout, slab, self._replica_feed, connect, workers
            self.sums = SlabSums(member, *kept, make_pushes, background, feed=feed)
            through = connect, layout, member, workers, fetcher, bench.transport
            self.relaying = ProcessRelaying(*through, new_background(), slow_s=program.slow_s)
            closing.callback(self.relaying.close)

    def make_gradients(self, feed: Callable[[Any], None]) -> SlabGradients:
        """Make the port by which the worker's node has gradients computed; `feed` takes what becomes of them."""
        bench = self._bench
        parts = self._session, bench.slab, bench.computing, self._fetcher, self._pushes, self._replica_feed
        shards = bench.layout.shards
        self._gradients = SlabGradients(
            *parts, self._background, feed, shards=shards, per_block=bench.per_block, sums=self.sums
        )
        return self._gradients

    @property
    def seen(self) -> bool:
        """Whether every server sees gradients where they lie: none has to be sent."""
        return self._gradients is not None and self._gradients.seen

    def serve(self, node: WorkerNode) -> None:
        """Hand parameters on from now on, where that is done, as `node` says."""
        if self.relaying is not None:
            self.relaying.serve(node)

    def note_taken(self, took: Callable[[Pulled, float], None]) -> None:
        """Tell `took` of each pull that is taken without asking a server, and when."""
        self._fetcher.took = took

    def pull(self, effect: Send) -> None:
        """Fetch parameters from a copy of a shard, or from another worker's relay."""
        if effect.to.kind == "copy":
            self._fetcher.pull(effect.message, effect.to.name)
        elif self.relaying is not None:
            self.relaying.pull(effect.message, effect.to.name)

    async def attach(self, copies: Mapping[str, tuple[int, Peer]]) -> None:
        """Attach to the servers of the run's beginning among those copies, and begin to with the others.

        Raises
        ------
        PeerLost
            If one of those servers is gone or does not answer.
        """
        for name, (shard, peer) in copies.items():
            if name == first_server(shard):
                self._replica_feed.know(name, shard)
                await self._fetcher.attach(name, shard)
            else:  # it may not answer for long, and nobody needs it yet
                self.meet(name, peer, shard)

    def meet(self, copy: str, peer: Peer, shard: int) -> None:
        """Learn where a copy of a shard is, and let it see the slab before it serves."""
        self._fetcher.peers[copy] = peer
        self._replica_feed.know(copy, shard)
        if self._gradients is not None:
            self._background.do(self._gradients.prepare_for(copy, shard))

    async def redirect(self, shard: int, before: str) -> None:
        """Push what is exposed to the shard's new server: what `before` was sent is gone."""
        if self._gradients is not None:
            await self._gradients.redirect(shard, before)

    async def push_again(self, term: int) -> None:
        """Push what is exposed to servers that have dropped it for a coordinator before that of `term`."""
        if self._gradients is not None:
            await self._gradients.push_again(term)
