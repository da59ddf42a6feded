"""The coordinator as a Dask actor: in charge of the run, or its standby until it takes over.

It holds everything the run needs to go on without the program that started it: a client of its own, the program, the
log.  It is kept alive by its published future until the run is over.  The same actor is a standby elsewhere: it follows
the coordinator until it takes over, and is the coordinator from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from psplatform.core.protocol.wire import encode
from psplatform.core.supervision.placement import Placement
from psplatform.runtime.actor_log import ActorLog
from psplatform.runtime.actors.coordinator.host_process import HostProcess
from psplatform.runtime.actors.coordinator.standby_host import StandbyHost, StandbySnapshot
from psplatform.runtime.actors.coordinator.tenure import Tenure, grants_of
from psplatform.runtime.comms.answering import Listening, Reply
from psplatform.runtime.comms.background import Background
from psplatform.runtime.comms.calls import Peer, PeerLost
from psplatform.runtime.comms.lines import Said, messages_of
from psplatform.runtime.program import Program
from psplatform.runtime.store.keeping import keeper_of
from psplatform.runtime.store.run_log import RunLog


class CoordinatorHost(Listening):
    """Hands what programs and actors say to the coordinator in charge, or to the standby that may follow it.

    Parameters
    ----------
    run
        The run's id; all its actors, segments and datasets carry it.

    Attributes
    ----------
    tenure
        The coordinator, once it is in charge.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.tenure: Tenure | None = None
        self._place: HostProcess | None = None
        self._standby_host: StandbyHost | None = None
        self._over = asyncio.Event()
        self._dismissed = False
        self._background = Background(self._on_mishap, ActorLog(run, "coordinator"))

    # --- what programs call ---

    async def open(self, program: Program, placement: Placement, key: str, initial: bytes = b"") -> None:
        """Start the run in the background; `initial` is what its servers start from, beside the task."""
        async with self._settled_in(program, key) as place:
            background = Background(self._on_mishap, ActorLog(self.run, "coordinator"))
            keeper = await keeper_of(program)
            run_log = await RunLog.open(program.store, program.term, keeper=keeper, background=background)
            self.tenure = Tenure(place, run_log, program.term)
            self.tenure.start(placement, initial)

    async def stand_by(self, program: Program, key: str, lead: Peer, snapshot: StandbySnapshot) -> None:
        """Follow the coordinator at `lead`, and take over when it is lost."""
        arrived_at = asyncio.get_running_loop().time()
        async with self._settled_in(program, key) as place:
            standby_host = StandbyHost(
                self.run,
                program,
                place.connect,
                lead,
                place.fleet,
                place.client,
                on_take_over=lambda: self._background.do(self._take_over(place)),
                on_depart=lambda reason: self._background.do(place.leave()),
            )
            place.fleet.hold([place.peer])
            if self._dismissed:
                await place.close()
                return
            standby_host.begin(snapshot, grants_of(program), arrived_at)
            self._standby_host = standby_host

    @contextlib.asynccontextmanager
    async def _settled_in(self, program: Program, key: str) -> AsyncIterator[HostProcess]:
        """Take what this actor needs of its process; it is given back if what follows fails."""
        ending = self._over, self._background, self._before_it_ends
        self._place = place = await HostProcess.enter(program, type(self), key, *ending)
        try:
            yield place
        except BaseException:
            await place.close()
            raise

    async def _take_over(self, place: HostProcess) -> None:
        standby_host, self._standby_host = self._standby_host, None
        if standby_host is not None:
            try:
                self.tenure = await Tenure.succeed(place, standby_host)
            except Exception:
                await place.leave()  # its number is claimed: nobody else goes on either
                raise

    async def status(self, wait_s: float) -> dict[str, Any]:
        """Return how the run stands; answers at once if it is over, else after `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._over.wait()
        return self.tenure.status() if self.tenure is not None else {"phase": "standing by"}

    async def roles(self) -> dict[str, str]:
        """Return the address of every role, by name.

        Raises
        ------
        PeerLost
            If this is not the run's coordinator.
        """
        return self._in_charge.roles()

    async def standing(self) -> dict[str, Any]:
        """Return when the run's time began on this host's monotonic clock, and how its shards are served.

        ``copies`` has shard and place of each copy by name; ``shards`` what the coordinator holds of each.

        Raises
        ------
        PeerLost
            If this is not the run's coordinator.
        """
        return self._in_charge.standing()

    async def stop(self, reason: str) -> None:
        """End the run in good order.

        Raises
        ------
        PeerLost
            If this is not the run's coordinator.
        """
        self._in_charge.stop(reason)

    async def relieve(self) -> None:
        """Take over now: the coordinator's process is about to end in good order."""
        if self._standby_host is not None:
            self._standby_host.relieve()

    async def close(self) -> None:
        """End a standby whose run is over."""
        self._dismissed = True
        if self._standby_host is not None and self._place is not None:
            self._standby_host.dismiss()
            await self._place.leave()

    # --- what the run's actors call ---

    def take(self, sender: str, said: Said) -> Reply:
        """Take messages; return what is answered."""
        if self._standby_host is None:
            return self._in_charge.driver.inbox.take(sender, said)
        if sender != f"coordinator-{self._standby_host.standby.term}":
            return False
        answers = self._standby_host.take_all(messages_of(said))
        return encode(answers) if answers else True

    async def on_copy_failed(self, name: str, text: str) -> None:
        """Take a copy's word that it cannot go on."""
        self._in_charge.driver.copies.lose(name, text)

    async def on_cold_trouble(self, name: str, text: str) -> None:
        """Log that a copy cannot keep its state in the store for now."""
        driver = self._in_charge.driver
        driver.note({"kind": "cold replica", "at": driver.elapsed_s, "text": text})

    @property
    def _in_charge(self) -> Tenure:
        if self.tenure is None:
            where = self._place.peer.address if self._place is not None else "a process that has just been asked"
            raise PeerLost(f"the run's coordinator is not at {where}", peer=where)
        return self.tenure

    async def _before_it_ends(self) -> None:
        if self.tenure is not None:
            await self.tenure.hand_over()

    def _on_mishap(self, text: str) -> None:
        if self.tenure is not None:
            self.tenure.driver.on_mishap(text)
