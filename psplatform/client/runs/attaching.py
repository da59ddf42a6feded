"""Finding runs that other programs have started: by their stores, or by their ids on a cluster."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from distributed import Client

from psplatform.client.clusters.connecting import connect_to, not_asked, usable
from psplatform.client.run import Run
from psplatform.client.runs import records
from psplatform.client.runs.listing import State, look_at
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.places import place_of
from psplatform.replication.stores.store import describe_run
from psplatform.runtime.cluster import cluster_of
from psplatform.runtime.comms.calls import Peer
from psplatform.runtime.comms.hosting import dataset_name


def attach(store_or_id: str, client: Client | None = None) -> Run:
    """Return a run that another program started, by its store or, on the client's cluster, by its id.

    Without a client, the scheduler on which this user has started the run is asked, as the user's own records name it;
    that of a run which made a cluster of its own is heard on the same machine.  What the store says of its scheduler is
    not believed: Dask runs what a scheduler answers.  A run that is over, or whose cluster is gone, is read from its
    store, and so is one whose scheduler is not known while its log does not grow.

    Raises
    ------
    ConfigurationError
        If there is no such run; on a cluster, the ids of those there are named.  If it goes on, its scheduler is not
        known, and no client was given.
    """
    store_or_id = place_of(store_or_id)
    if client is not None and not _is_store(store_or_id):
        return _attach_by_id(store_or_id, client)
    description = describe_run(store_or_id)
    run = description["run"]
    client = usable(client) if client is not None else None
    own = client is None
    if "outcome" in description:
        return Run(run, store_or_id, gone=True)  # no process is left that could go on with it
    if client is None:
        record = records.known(run, store_or_id)
        if record is None:
            return _unknown(run, store_or_id, description)
        client = connect_to(record)
        if client is None:
            return Run(run, store_or_id, gone=True)
    on_close = client.close if own else None
    try:
        return _attach_by_id(run, client, on_close)
    except ConfigurationError:
        return Run(run, store_or_id, client=client, on_close=on_close)  # it is starting, or lost
    except BaseException:  # a client whose scheduler is gone tries to reconnect for ever
        with contextlib.suppress(OSError, TimeoutError):
            if own:
                client.close()
        raise


def _unknown(run: str, store: str, description: dict[str, Any]) -> Run:
    """Return what a store says of a run whose scheduler this user does not know; refuse one that goes on."""
    listed, unasked = look_at(store), not_asked(store, description)
    if listed.state is State.LIVE:
        raise ConfigurationError(f"run {run} goes on ({listed.reason}), and {unasked}", field="scheduler")
    return Run(run, store, gone=True, unasked=unasked)


def runs_on(client: Client) -> list[str]:
    """Return the ids of the runs that go on on the client's cluster; those whose coordinator died are left out."""
    return sorted(usable(client).sync(find_runs, client))


async def find_runs(client: Client) -> dict[str, str]:
    """Return the store of each run that `runs_on` finds, in the order of their ids, on the client's own event loop."""
    initial_role = dataset_name("")
    names = sorted(str(name) for name in await client.list_datasets() if str(name).startswith(initial_role))
    _, there = await cluster_of(client)
    cards = {name: await client.get_metadata([name], default=None) or {} for name in names}
    going_on = {name: card for name, card in cards.items() if card.get("address") in there}
    return {name.removeprefix(initial_role): str(card.get("store", "")) for name, card in going_on.items()}


def _attach_by_id(run: str, client: Client, on_close: Callable[[], None] | None = None) -> Run:
    details = usable(client).get_metadata([dataset_name(run)], default=None)
    if run not in runs_on(client) or details is None:
        known = ", ".join(runs_on(client)) or "none"
        raise ConfigurationError(f"no run {run!r} on this cluster (there are: {known})", field="run")
    coordinator = Peer(details["address"], details["key"])
    return Run(run, details["store"], client=client, coordinator=coordinator, on_close=on_close)


def _is_store(text: str) -> bool:
    # A run's id is no URL; whether there is a run at one is for who opens it to say, with the reason if there is none.
    return "://" in text or os.path.exists(text)  # noqa: PTH110  unlike Path, it takes what may not be looked at for none
