"""The run times of a run's gradients, out of its log: a trace that other runs can be slowed down or simulated with.

A row is one gradient, in the order of slots and sequences, each counted from 0 without gaps: a slot that computed
nothing does not occur, and where a gradient is missing the slot's later ones move up.  `version` keeps the rounds of
synchronous policies apart; it is the gradient's label, the oldest one where a policy decides block by block, and no
round under a policy that is not synchronous.  A slot outlives the process in it: the times of a process that took over
follow those of the one before.

Gradients that were cut off have a row as well, with `censored`: nothing is known of their time but that it is above
the longest of those accepted in the round, which stands in its place.  (Strictly: a worker that was slow to stop or to
pull is taken for one that was slow to compute, as `psplatform.policies.cutoff` does.)  They are not to be taken for
run times.  Left out are gradients of which not even that is known: those of workers that were lost while computing, or
began in mid-round and were cut off, and those in a round that no commit ended.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from psplatform.core.reasons import ABORTED
from psplatform.errors import ProtocolError
from psplatform.telemetry.log.segments import Record

COLUMNS: Final = ("slot", "sequence", "seconds", "pull_s", "push_s", "wait_s", "version", "censored")

_Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RunTime:
    """What one gradient took.

    Attributes
    ----------
    slot, sequence
        As in the run: sequences count from 1.
    seconds
        Of computing; where `censored` the longest in its round, which this one is above.
    pull_s, push_s, wait_s
        Seconds of fetching the parameters, of bringing the gradient to the servers, and of waiting before; ``None``
        where the gradient was cut off.
    version
        Its label: the round it belongs to, under a synchronous policy.
    """

    slot: int
    sequence: int
    seconds: float
    pull_s: float | None
    push_s: float | None
    wait_s: float | None
    version: int
    censored: bool = False


def run_times(records: Iterable[Record]) -> list[RunTime]:
    """Return the run times in a log, in the order of slots and sequences.

    Raises
    ------
    ProtocolError
        If a record lacks a field.
    """
    found = _Reading()
    for record in records:
        try:
            found.take(record)
        except KeyError as error:
            kind = record["kind"]
            message = f"a log record of kind {kind!r} has no field {error}; read the log with the psplatform it is of"
            raise ProtocolError(message) from error
    return [found.times[identity] for identity in sorted(found.times)]


def to_csv(times: Iterable[RunTime]) -> str:
    """Return the trace as CSV text: `COLUMNS`, with slots and sequences counted from 0 without gaps."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    numbers: dict[int, int] = {}
    counts: dict[int, int] = {}
    for one in sorted(times, key=lambda each: (each.slot, each.sequence)):
        slot = numbers.setdefault(one.slot, len(numbers))
        sequence = counts[slot] = counts.get(slot, -1) + 1
        transfers = (one.pull_s, one.push_s, one.wait_s)
        writer.writerow((slot, sequence, one.seconds, *transfers, one.version, int(one.censored)))
    return text.getvalue()


@dataclass(slots=True)
class _Reading:
    """What the log said so far: the rounds' begin and longest accepted time by version, who computes since when."""

    times: dict[_Identity, RunTime] = field(default_factory=dict)
    computing: dict[_Identity, tuple[int, float]] = field(default_factory=dict)
    begun: dict[int, float] = field(default_factory=dict)
    longest: dict[int, float] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        kind = record["kind"]
        if kind == "joined":
            self.begun.setdefault(0, record["at"])
        elif kind == "start":
            self.computing[_identity(record)] = record["version"], record["at"]
        elif kind == "gradient":
            self._note(record)
        elif kind == "commit":
            self._end_round(record)
        elif kind == "aborted" or (kind == "dropped" and record["reason"] == ABORTED):
            self._note_cut_off(_identity(record))

    def _note(self, record: Record) -> None:
        identity = _identity(record)
        self.computing.pop(identity, None)
        transfers = record["pull_s"], record["push_s"], record["wait_s"]
        if record["label"] >= 0:  # else it belongs to no round: it was computed on what nobody knew any more
            self.times[identity] = RunTime(*identity, record["compute_s"], *transfers, record["label"])

    def _end_round(self, record: Record) -> None:
        # Blocks have rounds of their own, and a gradient is not cut off where it is one of several.
        if "block" not in record:
            accepted = zip(record["slots"], record["sequences"], strict=True)
            seconds = [self.times[identity].seconds for identity in accepted if identity in self.times]
            self.longest[record["version"] - 1] = max(seconds, default=0.0)
            self.begun[record["version"]] = record["at"]

    def _note_cut_off(self, identity: _Identity) -> None:
        version, since = self.computing.pop(identity, (-1, 0.0))
        longest = self.longest.get(version, 0.0)
        if longest > 0 and since <= self.begun.get(version, since):
            self.times[identity] = RunTime(*identity, longest, None, None, None, version, censored=True)


def _identity(record: Record) -> _Identity:
    return record["slot"], record["sequence"]
