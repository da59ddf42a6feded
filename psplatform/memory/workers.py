"""The gradient workers of an in-memory run."""

from __future__ import annotations

from functools import partial
from typing import Any

from psplatform.core.plan import Plan
from psplatform.core.policy import Scope, Traits
from psplatform.core.protocol.effects import COORDINATOR, Role, Send
from psplatform.core.protocol.events import Begin
from psplatform.core.protocol.messages import Leave, Pulled
from psplatform.core.workers.session import WorkerSession
from psplatform.memory.agenda import Agenda
from psplatform.memory.arithmetic import Arithmetic
from psplatform.memory.gradients import Room, VirtualGradients
from psplatform.memory.processes import Processes, VirtualTimers
from psplatform.memory.world import Post, World
from psplatform.nodes.worker import WorkerNode


class Workers:
    """Makes worker nodes, and tells them what comes for them.

    Parameters
    ----------
    seed
        Of what the workers draw by themselves.

    Attributes
    ----------
    nodes
        All workers that the run has had, by name.
    """

    def __init__(  # noqa: PLR0917  what every worker needs of the run, each a different thing
        self,
        plan: Plan,
        traits: Traits,
        agenda: Agenda,
        processes: Processes,
        arithmetic: Arithmetic,
        world: World,
        room: Room,
        post: Post,
        *,
        seed: int,
    ) -> None:
        self.nodes: dict[str, WorkerNode] = {}
        self._plan, self._traits, self._seed = plan, traits, seed
        self._agenda, self._processes = agenda, processes
        self._arithmetic, self._world, self._room = arithmetic, world, room
        self._post = post

    @property
    def present(self) -> list[str]:
        """The names of those that have neither left nor been killed."""
        return [name for name, one in self.nodes.items() if not one.closed and not self._processes.is_dead(name)]

    @property
    def waiting(self) -> dict[str, str]:
        """What each of them waits for, in words, by name."""
        return {name: words for name, one in self.nodes.items() if (words := one.waits_for)}

    def begin(self, name: str, term: int) -> None:
        """Let a worker of that name join the coordinator of `term`."""
        plan, gradients = self._plan, (self._agenda, self._processes, self._arithmetic, self._world, self._room)
        self._post.introduce(name, term)
        node = self.nodes[name] = WorkerNode(
            WorkerSession(name, f"memory://{name}", plan.shards, self._traits, seed=self._seed),
            lambda: self._agenda.now,
            partial(self._post.send, Role.member(name)),
            lambda fire: VirtualTimers(self._agenda, self._processes, name, fire),
            lambda feed: VirtualGradients(
                name, *gradients, feed, shards=plan.shards, per_block=self._traits.scope is Scope.BLOCK
            ),
            partial(self.leave, name),
        )
        node.feed(Begin())

    def receive(self, name: str, message: Any, content: Any) -> None:
        """Give a worker a message, with a shard's content where it is the answer to a pull."""
        node = self.nodes[name]
        if isinstance(message, Pulled) and node.expects(message):
            self._arithmetic.load(name, message.shard, content)
        node.feed(message)

    def leave(self, name: str, reason: str) -> None:
        """Let a worker go away in good order."""
        if name in self.nodes and not self.nodes[name].closed:
            self.nodes[name].close()
            self._post.send(Role.member(name), Send(COORDINATOR, Leave(name, reason)))
