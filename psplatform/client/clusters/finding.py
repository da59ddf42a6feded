"""What a cluster's processes hold of a run, whatever its scheduler still says of it."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Final

from distributed import Client

from psplatform.runtime.comms.calls import Peer, PeerLost, call_the_living
from psplatform.runtime.comms.hosting import dataset_name

_DEADLINE_S: Final = 10.0


def actors_of(run: str, client: Client) -> set[str]:
    """Return the keys of the run's actors that are, or are being made, in the cluster's processes."""
    places = [*client.has_what().values(), *client.processing().values()]
    keys = {str(key) for place in places for key in place}
    return {key for key in keys if key.startswith(f"{dataset_name(run)}-")}


def ended_lead(run: str, client: Any) -> Peer | None:
    """Return a coordinator that says that the run is over, if a program still holds one: no card leads to it."""
    leads = re.compile(rf"{re.escape(dataset_name(run))}-(\d+-)?(coordinator|standby-\d+(-\d+)?)")
    for address, keys in client.has_what().items():
        for peer in [Peer(address, str(key)) for key in keys if leads.fullmatch(str(key))]:
            with contextlib.suppress(PeerLost):
                status = client.sync(call_the_living, client.rpc, peer, "status", 0.0, deadline_s=_DEADLINE_S)
                if status["phase"] == "over":
                    return peer
    return None
