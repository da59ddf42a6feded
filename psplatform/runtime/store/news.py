"""What became of a run's store while it went on, told to those that look at the run."""

from __future__ import annotations

from typing import Any, Protocol

from psplatform.core.coordination.shards.checkpoints import DUE
from psplatform.core.protocol.events import TimerFired
from psplatform.runtime.store.run_log import RunLog


class HostOfStore(Protocol):
    """What news of the store concern in the coordinator's process."""

    @property
    def elapsed_s(self) -> float:
        """Seconds since the servers were ready."""

    def note(self, record: dict[str, Any]) -> None:
        """Add a record to the log that no event has led to."""

    def feed(self, event: Any) -> None:
        """Hand an event to the coordinator, and execute what it answers."""


def told(run_log: RunLog, host: HostOfStore) -> RunLog:
    """Return the run log, which tells from now on what becomes of its store; one made anew gets a checkpoint soon."""

    def tell(text: str, renewed: bool) -> None:
        host.note({"kind": "store", "at": host.elapsed_s, "text": text})
        if renewed:
            host.feed(TimerFired(DUE))

    run_log.on_news = tell
    return run_log
