"""The way from a program to a run's coordinator, which may be replaced by its standby while the run goes on."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from distributed import Client

from psplatform.client.clusters.finding import actors_of, ended_lead
from psplatform.client.runs.listing import is_starting
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.cluster import cluster_of
from psplatform.runtime.comms.calls import Peer, PeerLost, call_the_living
from psplatform.runtime.comms.hosting import dataset_name
from psplatform.runtime.pools.deaths import death_of

_DEADLINE_S: Final = 10.0
"""Within which a coordinator answers, unless it is busy."""


class CoordinatorLink:
    """The coordinator of one run, as far as a program knows it, and the order to stop that it has to hear.

    Parameters
    ----------
    run, store
        The run's id, and the place where it persists.
    client
        Of the run's cluster; ``None`` where only the store is known.
    peer
        The coordinator; ``None`` to search the client's cluster for it when it is first needed.
    process
        The nanny and the process id of that coordinator, which tell how it ended if it does.
    gone
        Whether no coordinator is left, as far as is known.

    Attributes
    ----------
    stands_by
        Whether, when it was last looked for, it had a standby that can take over.
    """

    def __init__(
        self,
        run: str,
        store: str,
        client: Client | None,
        peer: Peer | None,
        process: tuple[str, int] | None,
        *,
        gone: bool,
    ) -> None:
        self.client = client
        self.process = process
        self.gone = gone
        self.stands_by = False
        self._run = run
        self._store = store
        self._peer = peer
        self._stop_reason: str | None = None
        self._stop_heard = True

    def ask(self, method: str, *arguments: Any, wait_s: float = 0.0) -> Any:
        """Return what the coordinator answers to a call that it may take `wait_s` for.

        Raises
        ------
        PeerLost
            If it does not answer.
        """
        client: Any = self.client
        deadline_s = _DEADLINE_S + wait_s
        return client.sync(call_the_living, client.rpc, self._peer, method, *arguments, deadline_s=deadline_s)

    def found(self) -> bool:
        """Whether there is a coordinator to be asked; one that is not known yet is looked for."""
        if self.client is None or self.gone:
            return False
        if self._peer is None:
            if self.seek():
                self.repeat_stop()
            else:
                self._peer = self._ended_here()
                self.gone = self._peer is None and not self._is_starting()
        return self._peer is not None

    def seek(self) -> bool:
        """Look where the run's coordinator is now; return whether it is elsewhere than before."""
        client: Any = self.client
        if client.scheduler is None:  # Dask has given it up: without it no standby can take over
            self.stands_by = False
            return False
        try:
            details = client.get_metadata([dataset_name(self._run)], default=None) or {}
        except (OSError, TimeoutError):
            return False
        self.stands_by = bool(details.get("standby"))
        found = Peer(details["address"], details["key"]) if "key" in details else self._peer
        moved, self._peer = found != self._peer, found
        return moved

    def order_stop(self, reason: str) -> None:
        """Keep the order to end the run, for every coordinator that is found, until one has heard it."""
        self._stop_reason, self._stop_heard = reason, False

    def repeat_stop(self) -> bool:
        """Tell the coordinator to end the run if that was ordered; return whether it has heard that now."""
        # A coordinator that is replaced and does not know it yet takes the order, and nothing comes of it.
        heard = False
        if self._stop_reason is not None:
            with contextlib.suppress(PeerLost):
                self.ask("stop", self._stop_reason)
                heard = self._stop_heard = True
        return heard

    def make_stop_heard(self) -> None:
        """Tell the coordinator to end the run if that was ordered and none has heard it."""
        if not self._stop_heard:
            self.repeat_stop()

    def left_the_cluster(self) -> bool:
        """Whether the scheduler no longer knows the coordinator's process, or is itself not to be had any more."""
        # Calls to a process that died last until their deadline; its scheduler knows at once.
        client: Any = self.client
        if client.scheduler is None:
            return True
        try:
            return self._peer is None or self._peer.address not in client.sync(cluster_of, client)[1]
        except (OSError, TimeoutError):
            return False

    def cluster_is_empty(self) -> bool:
        """Whether the scheduler knows no process at all: then no standby is left, either."""
        client: Any = self.client
        try:
            return client.scheduler is not None and not client.sync(cluster_of, client)[1]
        except (OSError, TimeoutError):
            return False

    def death(self) -> str:
        """Return how the coordinator's process ended, with what separates that from what follows; "" if unknown."""
        if self.client is None or self._peer is None or self.process is None:
            return ""
        client: Any = self.client
        try:
            death = client.sync(death_of, client, self._peer.address, *self.process)
        except (OSError, TimeoutError, RuntimeError):  # the last where the client is closed
            return ""
        return f"{death}: " if death is not None else ""

    def _ended_here(self) -> Peer | None:
        client: Any = self.client
        try:
            return ended_lead(self._run, client) if client.scheduler is not None else None
        except (OSError, TimeoutError):
            return None

    def _is_starting(self) -> bool:
        client: Any = self.client
        if client.scheduler is None:
            return False
        try:
            return bool(actors_of(self._run, client)) or is_starting(self._store, describe_run(self._store))
        except (OSError, TimeoutError):
            return True  # nothing is known; the next look tells
