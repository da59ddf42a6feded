"""What a log says that its store must hold besides: the end of the run, the checkpoints, the best version's model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from psplatform.telemetry.log.segments import Record


@dataclass(slots=True)
class Evidence:
    """What the segments of a log say, taken in order, those too that a takeover has superseded.

    Attributes
    ----------
    ended
        The terms of which a record says that the run has ended.
    kept_best
        Whether the model of a best version was saved.
    sealed
        The checkpoints that were sealed, each with the number of newest ones that were kept from then on.  Where
        segments are missing or damaged, those before are not among them: what was removed since is not known.
    known_sealed
        The same without the second; all that the log names.
    """

    ended: set[int] = field(default_factory=set)
    kept_best: bool = False
    sealed: list[tuple[int, int]] = field(default_factory=list)
    known_sealed: set[int] = field(default_factory=set)
    _keep: int = 1

    def take(self, term: int, records: Sequence[Record]) -> None:
        """Take the records of the next segment."""
        for record in records:
            kind = record["kind"]
            if kind == "run":
                self._keep = max(1, int((record.get("checkpoints") or {}).get("keep") or 1))
                self.ended.discard(term)
            elif kind == "finished":
                self.ended.add(term)
            elif kind == "evaluated":
                self.kept_best = self.kept_best or record.get("kept") is True
            elif kind == "checkpoint" and record.get("event") == "complete" and "number" in record:
                self.sealed.append((record["number"], self._keep))
                self.known_sealed.add(record["number"])

    def forget(self) -> None:
        """Take note that a segment is missing or damaged here."""
        self.sealed.clear()

    def required(self, present: Collection[int]) -> list[int]:
        """Return the checkpoints that must be there, as `present` are.

        Those present that the log does not name were sealed as well, and older ones may have been removed for them.
        """
        unnamed = sorted(set(present) - self.known_sealed)
        kept: list[int] = []
        for number, keep in sorted(self.sealed):
            older = [one for one in unnamed if one < number]
            unnamed = unnamed[len(older) :]
            kept = [*kept, *older, number][-keep:]
        if unnamed and self.sealed:
            kept = [*kept, *unnamed][-self.sealed[-1][1] :]
        return sorted(set(kept) & self.known_sealed)
