"""Parameters that a worker's process hands on to other workers, and its own way to the relays of others.

The relay pulls from servers as a worker does, under its own name (`Role.relay`), out of the server's segment or through
comms, and keeps the newest content of each shard in memory that is not written again: what is being sent does not
change, and newer content takes its place.  Nothing is pulled, mapped or kept before another worker asks.

A call that waits is answered "not yet" before its deadline, and made again.  When the worker leaves, all that wait are
answered so, and are refused from then on.  A relay that is lost, silent, unknown or fails is asked again until the
worker that waits for it asks for something else: when its patience is over, it asks the servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from numpy.typing import NDArray

from psplatform.core.protocol.effects import HandOn, Send
from psplatform.core.protocol.messages import Pull, Pulled
from psplatform.core.protocol.names import RELAY, Role
from psplatform.core.protocol.wire import encode
from psplatform.core.workers.relay import Relay
from psplatform.nodes.worker import WorkerNode
from psplatform.runtime.comms.answering import Answering
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.bulk import ask_worker
from psplatform.runtime.comms.calls import Connect, Peer, PeerLost
from psplatform.runtime.dataplane.pulls.content import Answer, Content, private_copy
from psplatform.runtime.dataplane.pulls.fetching import Fetcher
from psplatform.runtime.dataplane.pulls.parameters import Parameters
from psplatform.runtime.dataplane.transports import Transport
from psplatform.runtime.timeouts import TIMEOUTS
from psplatform.tensors.layout import Layout


class _Held(Parameters):
    """The content of each shard that was pulled last, as arrays that are not written again.

    Attributes
    ----------
    arrays
        By shard, the content by region in the order of the layout.
    """

    def __init__(self) -> None:
        self.arrays: dict[int, tuple[NDArray[Any], ...]] = {}

    def room(self, shard: int) -> None:
        """Return ``None``: what is kept is not written again."""

    def take(self, pulled: Pulled, content: Content | None, answer: Answer) -> bool:
        """Keep what was pulled, out of a server's content or of its answer; return whether it was there."""
        if content is None:
            self.arrays[pulled.shard] = answer.arrays
            return True
        place = answer.copy, pulled.version, pulled.epoch
        if not content.holds(*place):
            return False
        copied = private_copy(content.copies[answer.copy])
        if not content.holds(*place):
            return False
        self.arrays[pulled.shard] = tuple(one.numpy() for one in copied.values())
        return True


class ProcessRelaying:
    """`psplatform.nodes.ports.Relaying` of one worker, and the way of its own pulls to relays.

    Parameters
    ----------
    member
        The worker.
    workers
        Where other workers are, by name, as far as this one was told.
    fetcher
        Executes the worker's own pulls; its `peers` are the copies of shards for the relay as well.
    transport
        Opens what servers show, where it can be read.
    background
        Does the waiting for servers; closed with this.
    slow_s
        How much longer an answer may take because servers are made slow.

    Attributes
    ----------
    relay
        The state machine, which the node is given with this.
    handed_on
        Number of answers that were sent to workers, this one included.
    """

    def __init__(
        self,
        connect: Connect,
        layout: Layout,
        member: str,
        workers: Mapping[str, Peer],
        fetcher: Fetcher,
        transport: Transport,
        background: Background,
        *,
        slow_s: float = 0.0,
    ) -> None:
        self._connect = connect
        self._member, self._workers = member, workers
        self._deadline_s = TIMEOUTS.pull_s + slow_s
        self._fetcher = fetcher
        name = Role.relay(member).name
        self.relay = Relay(name, layout.shards)
        self.handed_on = 0
        self._node: WorkerNode | None = None
        self._held = _Held()
        places = connect, layout, name, None, fetcher.peers, self._held
        self._servers = Fetcher(*places, self._expects, self._feed, transport, background, slow_s=slow_s)
        self._servers.peers = fetcher.peers  # the same, so that it knows where a new server is
        self._answering: Answering[Answer] = Answering(self._on_asked)

    def serve(self, node: WorkerNode) -> None:
        """Answer pulls from now on, as `node` says."""
        self._node = node

    def pull(self, pull: Pull, relay: str) -> None:
        """Fetch the worker's own parameters from a relay, by the name of its role; the last pull is given up."""
        self._fetcher.pull_by(pull, partial(self._ask, relay.removesuffix(RELAY)))

    async def _ask(self, relay: str, pull: Pull) -> Answer:
        if relay == self._member:
            return await self.answer(pull)
        peer = self._workers.get(relay)
        if peer is None:
            raise PeerLost(f"{relay} is not known here")
        what = relay, "relay_pull", encode(pull)
        answer: Answer = await ask_worker(self._connect, peer, *what, deadline_s=self._deadline_s)
        return answer

    async def answer(self, pull: Pull) -> Answer:
        """Answer a worker with content of the version asked for, or newer, as soon as it is here, or "not yet".

        Raises
        ------
        PeerLost
            If the worker that this belongs to has not joined yet, or has left.
        """
        if self._node is None:
            raise PeerLost(f"{self._member} hands nothing on now")
        return await self._answering.answer_to(pull, self._answer_with)

    def _answer_with(self, pulled: Pulled | None) -> Answer:
        return Answer(None) if pulled is None else Answer(encode(pulled), arrays=self._held.arrays[pulled.shard])

    # --- what the node asks for, and is told ---

    def send(self, effect: Send) -> None:
        """Send a pull to a server, which answers the relay."""
        self._servers.pull(effect.message, effect.to.name)

    def hand_on(self, effect: HandOn) -> None:
        """Send what was kept of a shard to a worker, if it still waits for that."""
        self.handed_on += self._answering.give(effect.member, effect.answer)

    def _on_asked(self, event: Any) -> None:
        # Who is answered "not yet" asks again under the same number: the relay need not forget it.
        if isinstance(event, Pull):
            self._feed(event)

    def _expects(self, answer: Pulled) -> bool:
        return self._node is not None and self._node.relays(answer)

    def _feed(self, event: Any) -> None:
        if self._node is not None:
            self._node.feed_relay(event)

    def close(self) -> None:
        """Answer nobody any more, give up what is under way, and forget what was kept."""
        self._node = None
        self._answering.close()
        self._servers.close()
        self._held.arrays.clear()
