"""Consecutive records of a log by kind, and their fields as columns."""

from __future__ import annotations

from collections.abc import Collection, KeysView, Sequence
from typing import Any

from psplatform.errors import ProtocolError
from psplatform.telemetry.log.segments import Record


class Grouped:
    """Consecutive records, to be read column by column; neither they nor the columns may be changed.

    Attributes
    ----------
    records
        All of them, in order.
    """

    __slots__ = ("_by_kind", "_columns", "records")

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self._by_kind: dict[str, list[Record]] = {}
        self._columns: dict[tuple[str, str], list[Any]] = {}
        for record in records:
            kind = record.get("kind", "")
            if kind in self._by_kind:
                self._by_kind[kind].append(record)
            else:
                self._by_kind[kind] = [record]

    @property
    def kinds(self) -> KeysView[str]:
        """The kinds that there are."""
        return self._by_kind.keys()

    def of(self, kind: str) -> list[Record]:
        """Return the records of a kind, in order."""
        return self._by_kind.get(kind, [])

    def among(self, kinds: Collection[str]) -> list[Record]:
        """Return the records of several kinds, in order."""
        if self._by_kind.keys().isdisjoint(kinds):
            return []
        return [record for record in self.records if record.get("kind", "") in kinds]

    def column(self, kind: str, name: str) -> list[Any]:
        """Return a field of every record of a kind, in order.

        Raises
        ------
        ProtocolError
            If a record lacks it.
        """
        found = self._columns.get((kind, name))
        if found is None:
            try:
                found = [record[name] for record in self.of(kind)]
            except KeyError:
                message = f"a log record of kind {kind!r} has no field {name!r}"
                raise ProtocolError(f"{message}; read the log with the psplatform it is of") from None
            self._columns[kind, name] = found
        return found
