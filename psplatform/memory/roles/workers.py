"""The gradient workers of an in-memory run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from psplatform.core.plan import Plan
from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol.effects import Send
from psplatform.core.protocol.events import Begin
from psplatform.core.protocol.messages import JOIN_AGAIN, Leave, Pulled
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.core.workers.relay import Relay
from psplatform.core.workers.session import WorkerSession
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.engine import Engine, VirtualTimers
from psplatform.memory.roles.gradients import Backpressure, VirtualGradients
from psplatform.memory.roles.relaying import VirtualRelaying
from psplatform.memory.roles.sums import VirtualSums
from psplatform.nodes.worker import WorkerNode


class Workers:
    """Makes worker nodes, and tells them what comes for them.

    Parameters
    ----------
    seed
        Of what the workers draw by themselves.
    join_again
        Takes the name under which a worker that was told so offers itself again.
    on_late
        Takes the names of workers that have left and what still comes for them.

    Attributes
    ----------
    nodes
        All workers that the run has had, by name.
    """

    def __init__(
        self,
        plan: Plan,
        traits: Traits,
        engine: Engine,
        arithmetic: Arithmetic,
        backpressure: Backpressure,
        *,
        seed: int,
        host_of: Callable[[str], str] | None,
        join_again: Callable[[str], None],
        on_late: Callable[[str, Any], None],
    ) -> None:
        self.nodes: dict[str, WorkerNode] = {}
        self._plan, self._traits, self._seed = plan, traits, seed
        self._engine, self._network = engine, engine.network
        self._arithmetic, self._backpressure = arithmetic, backpressure
        self._join_again, self._on_late = join_again, on_late
        self._host_of = host_of
        self._clock = partial(getattr, engine.agenda, "now")

    @property
    def present(self) -> list[str]:
        """The names of those that have neither left nor been killed."""
        return [name for name in self.nodes if self._is_open(name)]

    @property
    def waiting(self) -> dict[str, str]:
        """What each of them waits for, in words, by name."""
        return {name: words for name, one in self.nodes.items() if (words := one.waits_for)}

    def begin(self, name: str, term: int) -> None:
        """Let a worker of that name join the coordinator of `term`."""
        plan, engine = self._plan, self._engine
        gradients = engine, self._arithmetic, self._backpressure
        self._network.introduce(name, term)
        host = self._host_of(name) if self._host_of is not None else ""
        relaying = VirtualRelaying(name, self._network) if host else None
        node = self.nodes[name] = WorkerNode(
            WorkerSession(name, f"memory://{name}", plan.shards, self._traits, seed=self._seed, host=host),
            self._clock,
            partial(self._network.send, Role.member(name)),
            lambda fire: VirtualTimers(engine.agenda, engine.processes, name, fire),
            lambda feed: VirtualGradients(
                name, *gradients, feed, shards=plan.shards, per_block=self._traits.scope is Scope.BLOCK
            ),
            partial(self.leave, name),
            make_sums=partial(self._make_sums, name) if host else None,
            relay=(Relay(Role.relay(name).name, plan.shards), relaying) if relaying is not None else None,
        )
        if relaying is not None:
            name_there = Role.relay(name).name
            engine.processes.share(name_there, name)
            self._network.listen(name_there, node.feed_relay, partial(self._keep, node, relaying))
        self._network.listen(name, node.feed, partial(self._load, node, name))
        node.feed(Begin())

    def leave(self, name: str, reason: str) -> None:
        """Let a worker go away in good order."""
        if name in self.nodes and not self.nodes[name].closed:
            self.nodes[name].close()
            self._network.listen(name, partial(self._on_late, name))
            self._network.send(Role.member(name), Send(COORDINATOR, Leave(name, reason)))
            if reason == JOIN_AGAIN and f"{name}+" not in self.nodes:
                self._join_again(f"{name}+")

    def _make_sums(self, name: str, feed: Callable[[Any], None]) -> VirtualSums:
        shards = self._plan.shards
        return VirtualSums(name, self._engine, self._arithmetic, shards, feed, tell=self._tell, is_open=self._is_open)

    def _is_open(self, name: str) -> bool:
        return name in self.nodes and not self.nodes[name].closed and not self._engine.processes.is_dead(name)

    def _tell(self, name: str, event: Any) -> None:
        if name in self.nodes:
            self.nodes[name].feed(event)

    def _keep(self, node: WorkerNode, relaying: VirtualRelaying, message: Any, content: Any) -> None:
        if node.relays(message):
            relaying.keep(message, content)

    def _load(self, node: WorkerNode, name: str, answer: Pulled, content: Any) -> None:
        if node.expects(answer):
            self._arithmetic.load(name, answer.shard, content)
