"""Processes of an in-memory run that end in good order: what lives in them is handed over first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from psplatform.core.protocol.effects import Finish, Retire, Send
from psplatform.core.protocol.events import CoordinatorLost
from psplatform.core.protocol.messages import PROCESS_ENDS, Retiring
from psplatform.core.protocol.names import COORDINATOR, Role
from psplatform.memory.engine import Network
from psplatform.memory.processes.inhabitants import Inhabitants
from psplatform.memory.processes.losses import Losses, Supervision
from psplatform.memory.roles.leading import VirtualStandby
from psplatform.memory.world import World

_LEAD: Final = "coordinator"


class RetiringRun(Inhabitants, Protocol):
    """A run whose processes can end in good order.

    Attributes
    ----------
    finish
        How the run has ended, once it has.
    supervision
        Whether copies that are not needed are closed.
    """

    supervision: Supervision
    finish: Finish | None
    losses: Losses


class Retirements:
    """Lets processes of `run` end as soon as nobody needs what lives in them, or after a while at the latest."""

    def __init__(self, run: RetiringRun, network: Network, world: World) -> None:
        self._run = run
        self._network = network
        self._world = world
        self._needed: dict[str, set[str]] = {}
        self._let_go: set[str] = set()

    def began(self, process: str) -> bool:
        """Whether that process ends, or has ended, in good order."""
        return process in self._needed

    def begin(self, process: str, seconds: float) -> None:
        """Let the process end within so many seconds; one that is stopped begins when it goes on."""
        process = self._run.processes.of(process)
        self._run.processes.do(process, self._begin, process, seconds)

    def _begin(self, process: str, seconds: float) -> None:
        run = self._run
        if process in self._needed or run.finish is not None:
            return
        copies = {name for name in run.copies if run.processes.of(name) == process}
        self._needed[process] = copies - self._let_go
        for name in sorted(copies):
            self._say(name)
        for name in list(run.workers.nodes):
            if run.processes.of(name) == process:
                run.workers.leave(name, PROCESS_ENDS)
        self._relieve(process)
        run.agenda.enter(seconds, run.processes.do, process, run.losses.kill, process)
        self._end_if_unneeded(process)

    def on_moved(self, name: str) -> None:
        """Let the copy of that name say again that it retires: it has heard of another coordinator."""
        if self._is_needed(name):
            self._say(name)

    def on_retire(self, sender: Role, name: str) -> None:
        """Let a copy hear that nobody needs it any more, as `sender` says."""
        if self._run.supervision.closes and sender == self._run.leads[-1].role:
            self._tell(sender, name, self._run.copies[name].close)
        if not self._is_needed(name):
            self._let_go.add(name)
            return
        self._tell(sender, name, self._release, name, self._run.processes.of(name))

    def _tell(self, sender: Role, name: str, action: Callable[..., None], *arguments: Any) -> None:
        run = self._run
        delay_s = min(self._world.deliver(sender, Role.copy(name), Retire(name, ""), run.agenda.now))
        run.agenda.enter(delay_s, run.processes.do, name, action, *arguments)

    def _is_needed(self, name: str) -> bool:
        return name in self._needed.get(self._run.processes.of(name), ())

    def _say(self, name: str) -> None:
        self._network.send(Role.copy(name), Send(COORDINATOR, Retiring(name)))

    def _release(self, name: str, process: str) -> None:
        self._needed[process].discard(name)
        self._end_if_unneeded(process)

    def _end_if_unneeded(self, process: str) -> None:
        if not self._needed[process]:
            self._run.losses.kill(process)

    # --- the coordinator ---

    def _relieve(self, process: str) -> None:
        """Let the standby take over from a coordinator that lives in the process."""
        run, lead, standby = self._run, self._run.leads[-1], self._run.standby
        if standby is None or run.processes.of(lead.name) != process or run.processes.of(standby.name) == process:
            return
        self._needed[process].add(_LEAD)
        lead.lead.replaced = True  # it decides nothing that its standby may not hear of
        to, event = Role("standby", standby.name), CoordinatorLost("retired")
        delay_s = min(self._world.deliver(lead.role, to, event, run.agenda.now))
        run.agenda.enter(delay_s, run.processes.do, standby.name, self._relieved, process, standby, event)

    def _relieved(self, process: str, standby: VirtualStandby, event: CoordinatorLost) -> None:
        standby.feed(event)
        self._release(_LEAD, process)
