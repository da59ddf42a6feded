"""What a run in memory lives in: time that jumps, processes that are killed and stopped, and the network between."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from psplatform.core.protocol.effects import Effect, Send
from psplatform.core.protocol.messages import Pulled, Transfer
from psplatform.core.protocol.names import Role
from psplatform.memory.world import World


@dataclass
class Agenda:
    """A queue of things to do on a clock that jumps from one to the next.

    What is to be done at once waits in a queue of its own: it was entered later than whatever the heap holds for the
    same time, and most of what happens in a run takes no time.

    Attributes
    ----------
    done
        Entries done so far.
    """

    now: float = 0.0
    done: int = 0
    _later: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(default_factory=list)
    _at_once: deque[tuple[Callable[..., None], tuple[Any, ...]]] = field(default_factory=deque)
    _count: int = 0

    def enter(self, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` with `arguments` in `delay_s` seconds."""
        if delay_s <= 0.0:
            self._at_once.append((action, arguments))
        else:
            self._count += 1
            heapq.heappush(self._later, (self.now + delay_s, self._count, action, arguments))

    def enter_at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` at `time`, or now if that is over."""
        self.enter(0.0, action, *arguments) if time <= self.now else self._enter_later(time, action, arguments)

    def do_next(self) -> bool:
        """Jump to the next entry and do it; return whether there was one."""
        later = self._later
        if self._at_once and not (later and later[0][0] <= self.now):
            action, arguments = self._at_once.popleft()
        elif later:
            self.now, _, action, arguments = heapq.heappop(later)
        else:
            return False
        self.done += 1
        action(*arguments)
        return True

    def _enter_later(self, time: float, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._count += 1
        heapq.heappush(self._later, (time, self._count, action, arguments))


Handled = Callable[[str, Any, list[Effect]], None]
"""Takes the name of a role, an event, and what the role asks for about it, before any of that is executed."""


@dataclass
class Processes:
    """Which processes are dead or stopped, whose clock runs how fast, and who shares one.

    Attributes
    ----------
    on_handled
        Told of all that coordinators and copies handle, for those who check it.
    dead
        Processes that were killed.
    rates
        Seconds that a process's own clock counts in one; 1 for those that are not here.
    are_undisturbed
        Whether none was ever killed or stopped.
    """

    agenda: Agenda
    on_handled: Handled | None = None
    dead: set[str] = field(default_factory=set)
    rates: dict[str, float] = field(default_factory=dict)
    are_undisturbed: bool = True
    _shared: dict[str, str] = field(default_factory=dict)
    _stopped: dict[str, deque[tuple[Callable[..., None], tuple[Any, ...]]]] = field(default_factory=dict)
    _until: dict[str, float] = field(default_factory=dict)

    def share(self, name: str, process: str) -> None:
        """Let the role of that name live in `process`; others have a process of their own name."""
        self._shared[name] = self.of(process)

    def of(self, name: str) -> str:
        """Return the process of a role."""
        return self._shared.get(name, name)

    def is_dead(self, name: str) -> bool:
        """Whether the role's process was killed."""
        return self.of(name) in self.dead

    def is_stopped(self, name: str) -> bool:
        """Whether the role's process is stopped."""
        return self.of(name) in self._stopped

    def first_apart(self, names: list[str], others: list[str]) -> str | None:
        """Return the first of those roles that lives, and in another process than each of `others`."""
        taken = {self.of(other) for other in others}
        return next((one for one in names if not self.is_dead(one) and self.of(one) not in taken), None)

    def clock(self, name: str) -> float:
        """Return what the clock of the role's process says."""
        return self.agenda.now * self.rates.get(self.of(name), 1.0) if self.rates else self.agenda.now

    def note(self, name: str, event: Any, effects: list[Effect]) -> None:
        """Tell who checks it what the role of that name is about to do about `event`."""
        if self.on_handled is not None:
            self.on_handled(name, event, effects)

    def do(self, name: str, action: Callable[..., None], *arguments: Any) -> None:
        """Do `action` in the role's process: now, when it goes on, or never."""
        if self.are_undisturbed:
            action(*arguments)
            return
        process = self.of(name)
        if process in self._stopped:
            self._stopped[process].append((action, arguments))
        elif process not in self.dead:
            action(*arguments)

    def kill(self, process: str) -> None:
        """End a process: what it was about to do is never done."""
        self.are_undisturbed = False
        self.dead.add(process)
        self._stopped.pop(process, None)

    def stop(self, process: str, seconds: float) -> None:
        """Let a process do nothing for so long; where it is stopped already, until the later end."""
        self.are_undisturbed = False
        if process not in self.dead:
            self._stopped.setdefault(process, deque())
            until = self._until[process] = max(self._until.get(process, 0.0), self.agenda.now + seconds)
            self.agenda.enter_at(until, self._go_on, process)

    def _go_on(self, process: str) -> None:
        """Let a stopped process do what has been waiting for it, unless it was stopped for longer meanwhile."""
        if self._until.get(process, 0.0) > self.agenda.now:
            return
        for action, arguments in self._stopped.pop(process, ()):
            self.agenda.enter(0.0, self.do, process, action, *arguments)


class VirtualTimers:
    """Entries of the agenda that are done in the process of a role: later where it is stopped, never where it is dead.

    Parameters
    ----------
    name
        Of the role.
    fire
        Takes the tag of each timer that is due.

    Attributes
    ----------
    due
        When each timer that is set is due, by its tag.
    """

    __slots__ = ("_agenda", "_do", "_fire", "_name", "_tokens", "due")

    def __init__(self, agenda: Agenda, processes: Processes, name: str, fire: Callable[[str], None]) -> None:
        self.due: dict[str, float] = {}
        self._agenda, self._do, self._name = agenda, processes.do, name
        self._tokens: dict[str, object] = {}
        self._fire = fire

    def set(self, tag: str, at: float) -> None:
        """Fire under `tag` at that time, and not at the one set before under it."""
        self.due[tag] = at
        token = self._tokens[tag] = object()
        self._agenda.enter_at(at, self._do, self._name, self._fire_now, tag, token)

    def cancel(self, tag: str) -> None:
        """Forget the time set under `tag`, if there is one."""
        self.due.pop(tag, None)
        self._tokens.pop(tag, None)

    def close(self) -> None:
        """Fire no more."""
        self.due.clear()
        self._tokens.clear()

    def _fire_now(self, tag: str, token: object) -> None:
        if self._tokens.get(tag) is token:  # until it is done it can be replaced and cancelled
            self.cancel(tag)
            self._fire(tag)


CARRIED: Final = frozenset({Pulled, Transfer})
"""Messages beside which content travels."""

_FIRST: Final = Role("coordinator", "1")

_NOBODY: Final = (lambda message, content: None, lambda message: None)


class Network:
    """Delivers messages to roles, those for the coordinator to the one that their sender has heard of last.

    Parameters
    ----------
    world
        Says how long each message takes, and how often it arrives.
    snapshot
        Returns the visible content of a copy: it travels beside the answer to a pull.

    Attributes
    ----------
    on_moved
        Told of each role that hears of another coordinator.
    on_delivered
        Told of the sender of each message that has been handled, where that is wanted.
    on_arrival
        Lets a role handle what arrives, where that is to be watched: given its name, the message, and what does it.
    """

    def __init__(self, agenda: Agenda, processes: Processes, world: World, snapshot: Callable[[str], Any]) -> None:
        self.on_moved: Callable[[str], None] = lambda name: None
        self.on_delivered: Callable[[Role], None] | None = None
        self.on_arrival: Callable[[str, Any, Callable[[], None]], None] | None = None
        self._agenda, self._processes = agenda, processes
        self._world = world
        self._snapshot = snapshot
        # By role, what takes the content beside a message, and what takes the message.
        self._inboxes: dict[str, tuple[Callable[[Any, Any], None], Callable[[Any], None]]] = {}
        self._obeyed: dict[str, Role] = {}
        self._newest_term = 1

    def listen(
        self, name: str, feed: Callable[[Any], None], load: Callable[[Any, Any], None] = lambda message, content: None
    ) -> None:
        """Let the role of that name take its messages by `feed`, the content beside one by `load` before."""
        self._inboxes[name] = load, feed

    def close(self, name: str) -> None:
        """Let what comes for the role of that name be lost."""
        self._inboxes.pop(name, None)

    def send(self, sender: Role, effect: Send, content: Any = None) -> None:
        """Let a message arrive as often, and as late, as the world says."""
        to, message = effect.to, effect.message
        if type(message) is Pulled and content is None:
            content = self._snapshot(sender.name)
        if to.kind == "coordinator":
            to = self.obeyed(sender.name)
        for delay_s in self._world.deliver(sender, to, message, self._agenda.now):
            self._agenda.enter(delay_s, self.deliver, sender, to, message, content)

    def introduce(self, name: str, term: int) -> None:
        """Let what the role of that name says to the coordinator go to the one of `term`."""
        self._obeyed[name] = Role("coordinator", str(term))
        self._newest_term = max(self._newest_term, term)

    def obeyed(self, name: str) -> Role:
        """Return the coordinator that the role of that name has heard of last."""
        return self._obeyed.get(name, _FIRST)

    def announce(self, term: int) -> None:
        """Expect a coordinator of `term`, of which nothing has been heard yet."""
        self._newest_term = max(self._newest_term, term)

    def deliver(self, sender: Role, to: Role, message: Any, content: Any = None) -> None:
        """Let a message arrive now: it is handled when the role's process runs."""
        name, processes = name_of(to), self._processes
        if processes.are_undisturbed:
            self._hand_over(name, sender, to, message, content)
        else:
            processes.do(name, self._hand_over, name, sender, to, message, content)

    def _hand_over(self, name: str, sender: Role, to: Role, message: Any, content: Any) -> None:
        if self._newest_term > 1 and to.kind in ("copy", "member"):
            self._hear(name, message)
        if self.on_arrival is None:
            self._take(name, message, content)
        elif name in self._inboxes:
            self.on_arrival(name, message, partial(self._take, name, message, content))
        if self.on_delivered is not None:
            self.on_delivered(sender)

    def _take(self, name: str, message: Any, content: Any) -> None:
        load, feed = self._inboxes.get(name, _NOBODY)
        if type(message) in CARRIED:
            load(message, content)
        feed(message)

    def _hear(self, name: str, message: Any) -> None:
        term = getattr(message, "term", 0)
        if term > int(self._obeyed.get(name, _FIRST).name):
            self.introduce(name, term)
            self.on_moved(name)


@dataclass(frozen=True, slots=True)
class Engine:
    """What every role of one run needs of it."""

    agenda: Agenda
    processes: Processes
    network: Network
    world: World

    def later(self, name: str, delay_s: float, action: Callable[..., None], *arguments: Any) -> None:
        """Do `action` with `arguments` in `delay_s` seconds, in the process of the role of that name."""
        self.agenda.enter(delay_s, self.processes.do, name, action, *arguments)


def make_engine(world: World, snapshot: Callable[[str], Any]) -> Engine:
    """Return an engine at time 0; for `world` and `snapshot` see `Network`."""
    agenda = Agenda()
    processes = Processes(agenda)
    return Engine(agenda, processes, Network(agenda, processes, world, snapshot), world)


def name_of(role: Role) -> str:
    """Return the name by which processes know a role."""
    return f"coordinator-{role.name}" if role.kind == "coordinator" else role.name
