"""A run's picture that keeps up with its log."""

from __future__ import annotations

from psplatform.telemetry.log.kinds import grouped
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import START
from psplatform.telemetry.read_model import RunView


class LiveRun:
    """The picture of the run in `store`, read on at each `refresh`.

    Attributes
    ----------
    view
        The picture as of the last refresh; replaced, not changed, where a takeover superseded part of it.
    """

    def __init__(self, store: str) -> None:
        self.view = RunView()
        self._reader = LogReader(store)
        self._position = START

    @property
    def skipped(self) -> list[str]:
        """The names of missing and damaged segments that were passed over."""
        return sorted({one.name for one in self._reader.skipped})

    def refresh(self) -> bool:
        """Fold what was logged since; return whether there was anything.

        Raises
        ------
        StoreError
            If the log cannot be read; a later refresh goes on where this one ended.
        ProtocolError
            If a record is none, or lacks a field, or has one that is not of its kind.
        """
        history = self._reader.history()
        if not history.holds(self._position):
            self.view, self._position = RunView(), START
        before = self._position
        for records, position in self._reader.iter_from(before, history):
            self.view.take(grouped(records))
            self._position = position
        return self._position != before
