"""The event log of a simulation: its digest, and the picture of the run that it draws."""

from __future__ import annotations

import hashlib
from typing import Any

import msgpack

from psplatform.telemetry.read_model import RunView


class EventTrace:
    """Takes the log's records one by one, and keeps them only if it is asked to.

    Attributes
    ----------
    view
        The run's picture.
    records
        The records so far, where they are kept.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self.view = RunView()
        self.records: list[dict[str, Any]] = []
        self._keep = keep
        self._digest = hashlib.sha256()
        self._pack = msgpack.Packer().pack

    def append(self, record: dict[str, Any], /) -> None:
        """Take the next record."""
        self._digest.update(self._pack(record))
        self.view.apply(record)
        if self._keep:
            self.records.append(record)

    @property
    def sha256(self) -> str:
        """Digest of all records so far, packed by msgpack."""
        return self._digest.hexdigest()
