"""Whether a run still goes on, told from what its scheduler knows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from psplatform.client.runs.recovery import _goes_on, recover
from psplatform.errors import ConfigurationError
from psplatform.replication.stores.store import create_run
from psplatform.runtime.comms.hosting import key_of
from psplatform.telemetry.log.writer import EventLog

RUN = "digits-bsp-1a2b3c"


class Cluster:
    """What a client says of a cluster with these actors, where a run may be published."""

    def __init__(self, *actors: str, card: dict[str, Any] | None) -> None:
        self._actors, self._card = actors, card

    def has_what(self) -> dict[str, tuple[str, ...]]:
        return {"tcp://a:1": self._actors}

    def processing(self) -> dict[str, tuple[str, ...]]:
        return {"tcp://a:1": ()}

    def get_metadata(self, keys: list[str], default: Any) -> Any:
        return self._card or default


@pytest.mark.parametrize("term", [1, 2, 12])
@pytest.mark.parametrize(
    ("actors", "published", "goes_on"),
    [
        ([], True, False),
        (["worker-1", "server-0"], True, False),
        (["worker-1", "standby-3"], True, True),
        (["worker-1"], False, True),
        ([], False, False),
    ],
    ids=["nothing left", "workers without a coordinator", "with a standby", "not published yet", "gone"],
)
def test_a_run_whose_coordinator_is_not_there_goes_on_if_somebody_can_take_over(
    term: int, actors: list[str], published: bool, goes_on: bool
) -> None:
    card = {"address": "tcp://b:1", "key": key_of(RUN, term, "coordinator"), "store": "run.zarr"}
    others = key_of("digits-asp-4d5e6f", 1, "standby-2")
    cluster: Any = Cluster(*(key_of(RUN, term, name) for name in actors), others, card=card if published else None)
    assert _goes_on(RUN, "run.zarr", cluster) is goes_on


def test_a_run_of_which_nobody_is_asked_goes_on_while_its_log_grows(tmp_path: Path) -> None:
    """Then what the log says is enough; how to ask the scheduler that the store names is said as well."""
    store = str(tmp_path / "store.zarr")
    create_run(store, {"run": "r1", "scheduler": "tcp://elsewhere:1", "started": time.time() - 1000, "job": {}})
    with EventLog(store, 1) as log:
        log.append({"kind": "note", "at": 1.0, "text": "alive"})
    said = "run r1 seems to go on .*its log grew.*the scheduler tcp://elsewhere:1 .* was not asked; .* --scheduler tcp"
    for ask in (True, False):
        with pytest.raises(ConfigurationError, match=said):
            recover(store, ask_store_scheduler=ask)
