"""What an actor says in the log of its process, by Python's `logging`: every line names the run and the actor.

What happens to a run is in its own log, in its store.  Here is what each process of the cluster did for it: loggers
under ``psplatform`` say as ``INFO`` when an actor begins, serves, takes over and ends, and as ``ERROR``, with a
traceback, what was not foreseen.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any


class ActorLog(logging.LoggerAdapter[logging.Logger]):
    """The log of one actor.

    Records have the attributes ``run`` and ``actor`` for handlers that write fields.
    """

    def __init__(self, run: str, actor: str) -> None:
        super().__init__(logging.getLogger("psplatform.runtime"), {"run": run, "actor": actor})
        self._prefix = f"{run}, {actor}: "  # neither has a %, of which `logging` would make something

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message with the names in front, and the names as attributes of the record."""
        return f"{self._prefix}{msg}", {**kwargs, "extra": {**(kwargs.get("extra") or {}), **(self.extra or {})}}
