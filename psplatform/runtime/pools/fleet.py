"""The run's actors on the cluster: made, known, and let go of."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Final

from distributed import CancelledError, Client, Future

from psplatform.core.protocol.names import actor_name
from psplatform.core.supervision.placement import Process
from psplatform.errors import ClusterError, ConfigurationError, PsplatformError
from psplatform.runtime.cluster import cluster_of, foreign_workers
from psplatform.runtime.comms.calls import Peer, PeerLost, call, while_heard
from psplatform.runtime.comms.hosting import call_named, key_of, name_of
from psplatform.runtime.pools.deaths import Death, death_of
from psplatform.runtime.pools.election import offer
from psplatform.runtime.pools.warming import Warmth
from psplatform.runtime.program import Program
from psplatform.runtime.references import find_lacking
from psplatform.runtime.timeouts import TIMEOUTS

_TOLD: Final = 3
"""Processes whose deaths are told where a run has failed for want of processes."""


async def made(future: Future[Any], name: str, address: str) -> None:
    """Wait until the Dask worker at `address` has made an actor.

    Raises
    ------
    PeerLost
        If that worker is gone, fails, or does not get round to it.
    """
    try:
        async with asyncio.timeout(TIMEOUTS.create_s):
            # Waits for the actor without fetching Dask's handle of it, which nobody needs.
            failure: Any = await future.exception()
    except (TimeoutError, OSError, CancelledError) as error:
        raise PeerLost(f"{address} made no {name} within {TIMEOUTS.create_s:g} s", peer=address) from error
    if failure is not None:
        raise PeerLost(f"{address} could not make {name}: {failure!r}", peer=address)


class Fleet:
    """The actors of one run.

    Parameters
    ----------
    client
        An asynchronous client of the coordinator's own: the actors live as long as it holds them.

    Attributes
    ----------
    known
        The Dask workers that could take a role when the cluster was looked at last, by address.
    warmth
        Which of them need not import anything before a role is made there.
    left_out
        The Dask workers, by address, that cannot import what the run needs, and why.
    on_left_out
        Called with words for each of them, once.
    """

    def __init__(self, client: Client, connect: Any, program: Program) -> None:
        self._client = client
        self._connect = connect
        self._program = program
        self._held: dict[Peer, Future[Any]] = {}
        self._numbers = 0
        self._term = program.term
        self.known: dict[str, Process] = {}
        self.warmth = Warmth(client)
        self._able: set[str] = set()
        self.left_out: dict[str, str] = {}
        self.on_left_out: Callable[[str], None] = lambda text: None
        self._nannies: dict[str, str] = {}
        self._pids: dict[str, int] = {}
        self._departed: set[str] = set()
        self._deaths: dict[tuple[str, int | None], Death] = {}

    def begin_term(self, term: int) -> None:
        """Name actors under this coordinator's term from now on: what those before it have used is not all known."""
        self._term = term

    def next_name(self, role: str) -> str:
        """Return a name that no actor of this run has had."""
        self._numbers += 1
        return actor_name(role, self._term, self._numbers)

    def peer(self, name: str, address: str) -> Peer:
        """Return how the actor `name` on the Dask worker at `address` is reached, once it is there."""
        return Peer(address, key_of(self._program.run, self._program.term, name))

    async def create(self, host: type, name: str, address: str, *arguments: Any) -> Peer:
        """Make an actor of class `host` on the Dask worker at `address`.

        Raises
        ------
        PeerLost
            If that worker is gone or does not get round to it, or lacks what the program refers to.
        """
        if lack := await self.lack(address):
            raise PeerLost(f"{address} cannot run {name}: it {lack}", peer=address)
        peer = self.peer(name, address)
        watching = asyncio.create_task(self._until_gone(address))
        making = asyncio.create_task(self._make(peer, name, name_of(host), self._program.run, *arguments))
        try:
            await asyncio.wait([making, watching], return_when=asyncio.FIRST_COMPLETED)
            if not making.done():
                raise PeerLost(f"{address} left the cluster before it had made {name}", peer=address)
            making.result()
            await self.meet(peer)
        except BaseException:
            self.release(peer)
            raise
        finally:
            making.cancel()
            watching.cancel()
        return peer

    async def offer(self, term: int, number: int) -> None:
        """Let the number of a standby of the coordinator of `term` be claimed: before that, it is granted to none."""
        await offer(self._client, self._program, term, number)

    async def _make(self, peer: Peer, name: str, *arguments: Any) -> None:
        # Dask reads the arguments on that worker's event loop, and would import there whatever they are made of.
        await self.warmth.warm(peer.address)
        self._held[peer] = future = self._client.submit(
            call_named, *arguments, actor=True, key=peer.key, workers=[peer.address], pure=False
        )
        await made(future, name, peer.address)
        self.warmth.note([peer.address])

    async def meet(self, peer: Peer) -> None:
        """Learn of an actor's process, while it is there, what tells later how that ended.

        A nanny may start another process at the same address, so each actor's process is asked.
        """
        with contextlib.suppress(OSError, TimeoutError, PeerLost):
            if peer.address not in self._nannies:
                await self.cluster()
            process = await call(self._connect, peer, "alive", 0.0, deadline_s=TIMEOUTS.meet_s)
            if process is not None:
                if self._pids.get(peer.address, process.pid) != process.pid:
                    self._forget(peer.address)
                self._pids[peer.address] = process.pid

    def _forget(self, address: str) -> None:
        """Forget what was known of a process, because another runs at its address."""
        self._pids.pop(address, None)
        self._able.discard(address)
        self.warmth.forget(address)

    async def death_of(self, address: str) -> Death | None:
        """Return how the process of a Dask worker ended; ``None`` where it cannot be seen to have ended."""
        nanny, pid = self._nannies.get(address, ""), self._pids.get(address)
        known = self._deaths.get((address, pid)) if pid is not None else None
        if known is not None:
            return known
        death = await death_of(self._client, address, nanny, pid)
        return self._deaths.setdefault((address, pid), death) if death is not None else None

    async def explain(self, failure: PsplatformError | None, lost: Iterable[str]) -> PsplatformError | None:
        """Return why the run has failed, with what the `lost` processes died of where it failed for want of them."""
        if type(failure) is not ClusterError:
            return failure
        await asyncio.gather(*(self.death_of(address) for address in lost))
        deaths = [str(one) for one in self._deaths.values() if not (one.is_ordered and one.has_nanny)]
        return (
            ClusterError(f"{'; '.join(deaths[-_TOLD:])}; {failure.args[0]}", peer=failure.peer) if deaths else failure
        )

    async def _until_gone(self, address: str) -> None:
        # Dask would keep the actor for a worker of that address, which never comes.
        there = True
        while there:
            await asyncio.sleep(TIMEOUTS.create_look_s)
            with contextlib.suppress(OSError):
                there = address in (await self.cluster())[1]

    def hold(self, peers: Sequence[Peer]) -> None:
        """Hold actors that another process has made, so that they outlive it."""
        self.trust(peer.address for peer in peers)
        self.warmth.note(peer.address for peer in peers)
        keys = [peer.key for peer in peers if peer not in self._held]
        for peer in peers:
            self._held.setdefault(peer, Future(peer.key, self._client))
        # A future made by hand is not known to the scheduler: Dask has no public way to say that one wants a key.
        self._client._send_to_scheduler(  # noqa: SLF001
            {"op": "client-desires-keys", "keys": keys, "client": self._client.id}
        )

    async def open(self, peer: Peer, *arguments: Any) -> Any:
        """Let an actor build what it needs, of the program and of `arguments`; return what it says.

        Raises
        ------
        PeerLost
            If its process dies meanwhile, or is stopped.
        """
        opening = call(self._connect, peer, "open", self._program, *arguments, deadline_s=TIMEOUTS.open_s)
        return await while_heard(self._connect, peer, opening, f"it opened {peer.key}")

    async def close(self, peer: Peer) -> None:
        """Let an actor clean up, if it still can, and let go of it."""
        # One that is gone, or not open yet, has nothing to clean up; whatever it says, the run ends.
        if peer in self._held and self._held[peer].done():
            with contextlib.suppress(Exception):
                await call(self._connect, peer, "close", deadline_s=5.0)
        self.release(peer)

    async def close_all(self, but: Collection[Peer] = ()) -> None:
        """Let every actor but those clean up, and let go of them."""
        with contextlib.suppress(OSError, TimeoutError):  # without a scheduler, everybody is asked
            async with asyncio.timeout(TIMEOUTS.cluster_s):
                _, there = await self.cluster()
            for peer in [peer for peer in self._held if peer.address not in there]:
                self.release(peer)  # nobody would answer before the deadline
        await asyncio.gather(*(self.close(peer) for peer in list(self._held) if peer not in but))

    def release(self, peer: Peer) -> None:
        """Let go of an actor."""
        future = self._held.pop(peer, None)
        if future is None:
            return
        to_scheduler: Any = self._client.scheduler_comm
        if to_scheduler is None or to_scheduler.closed():
            future._cleared = True  # noqa: SLF001  nobody is there to be told, and Dask would try
        else:
            future.release()

    def release_all(self) -> None:
        """Let go of every actor."""
        for peer in list(self._held):
            self.release(peer)

    async def cluster(self) -> tuple[list[Process], set[str]]:
        """Return the Dask workers that can take a role now, and the addresses of all there are."""
        processes, there = await cluster_of(self._client)
        self.known = {one.address: one for one in processes}
        self._nannies.update({one.address: one.nanny for one in processes})
        for address in self._departed & there:
            self._forget(address)
        self._departed = (self._departed | self._pids.keys() | self._able | self.warmth.known) - there
        return processes, there

    async def fits(self, process: Process) -> bool:
        """Whether a Dask worker that came later can take a gradient worker."""
        if not process.offers(self._program.resources.get("worker", {})):
            return False
        try:
            foreign = any(await foreign_workers(self._client, [process.address]))
        except ConfigurationError:
            return False
        return not foreign and not await self.lack(process.address)

    def trust(self, addresses: Iterable[str]) -> None:
        """Count these Dask workers as having what the program refers to: another has asked them, or they run it."""
        self._able.update(addresses)

    async def lack(self, address: str) -> str:
        """Return what a Dask worker lacks of what the program refers to, in words that follow "it", or ``""``.

        One that lacks nothing is asked once; another may get what it lacks.
        """
        wanted = sorted(set(chain(*self._program.references.values())))
        if not wanted or address in self._able:
            return ""
        try:
            lacks = (await find_lacking(self._client, wanted, [address], TIMEOUTS.late_import_s)).get(address)
        except OSError as error:  # without a scheduler no role can be placed
            return f"could not be asked what it can import ({error})"
        if not lacks:
            self._able.add(address)
            self.left_out.pop(address, None)
            return ""
        if address not in self.left_out:
            remedy = "bring it there, and that worker is asked again when a process is needed"
            self.on_left_out(f"the Dask worker {address} is left out: it {lacks[0].reason}; {remedy}")
        self.left_out[address] = lacks[0].reason
        return lacks[0].reason
