"""What the fields of log records are, by kind: a log may have been written by anybody.

Only fields that readers compute with, or print, are looked at, and only where they are there: that one is missing is
noticed by the fold that needs it, and kinds and fields of later versions pass.  Each column of equal fields is looked
at as a whole, which costs a twentieth of folding it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from psplatform.errors import ProtocolError
from psplatform.telemetry.log.grouped import Grouped
from psplatform.telemetry.log.segments import Record
from psplatform.untrusted.checks import MOST, is_count, is_number
from psplatform.untrusted.values import Refused, require_shallow

MOST_SLOTS: Final = 1_000_000
"""Slots and shards that a run may have: what counts by slot has a row for each up to the largest."""

_Check = Callable[[Sequence[Any]], bool]


def grouped(records: Sequence[Record]) -> Grouped:
    """Return consecutive records by kind, once all of them are of their kinds.

    Raises
    ------
    ProtocolError
        If something is no record, or a field is not of its kind.
    """
    if not set(map(type, records)) <= {dict} or not set(map(type, (one.get("kind") for one in records))) <= {str}:
        message = "the log has a record that is none, or one without a kind"
        raise ProtocolError(f"{message}; read the log with the psplatform it is of")
    found = Grouped(records)
    require_kinds(found)
    return found


def require_kinds(found: Grouped) -> None:
    """Refuse records of which a field is not of its kind.

    Raises
    ------
    ProtocolError
        Naming the kind and the field.
    """
    for kind in found.kinds & FIELDS.keys():
        of_kind = found.of(kind)
        for name, holds in FIELDS[kind].items():
            try:
                values = found.column(kind, name)
            except ProtocolError:
                values = [record[name] for record in of_kind if name in record]
            if not holds(values):
                odd = next(value for value in values if not holds([value]))
                raise refused(kind, name, odd)


def refused(kind: object, name: str, value: object) -> ProtocolError:
    """Return the error about a field of a record that is not of its kind."""
    shown = value if isinstance(value, float) or (isinstance(value, int) and abs(value) <= 10**18) else type(value)
    said = shown.__name__ if isinstance(shown, type) else repr(shown)
    message = f"a log record of kind {str(kind)[:40]!r} has a field {name!r} that is none ({said})"
    return ProtocolError(f"{message}; read the log with the psplatform it is of")


def _of(*types: type) -> _Check:
    known = frozenset(types)
    return lambda values: known.issuperset(map(type, values))


def _between(least: int, most: int) -> _Check:
    def holds(values: Sequence[Any]) -> bool:
        return not values or (set(map(type, values)) == {int} and least <= min(values) and max(values) <= most)

    return holds


def _lists_of(holds: _Check) -> _Check:
    return lambda values: {list, tuple}.issuperset(map(type, values)) and holds(list(chain.from_iterable(values)))


def _each(holds: Callable[[Any], bool]) -> _Check:
    return lambda values: all(map(holds, values))


def _times(values: Sequence[Any]) -> bool:
    return {int, float}.issuperset(map(type, values)) and math.isfinite(math.fsum(map(_clipped, values)))


def _clipped(value: float) -> float:
    return value if abs(value) < MOST else math.nan


def _is_table(value: Any, **fields: Callable[[Any], bool]) -> bool:
    if value is None:
        return True
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value) or not _is_shallow(value):
        return False
    return all(holds(value[name]) for name, holds in fields.items() if value.get(name) is not None)


def _is_shallow(value: Any) -> bool:
    try:
        require_shallow(value)
    except Refused:
        return False
    return True


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_replication(value: Any) -> bool:
    texts = dict.fromkeys(("mode", "unit", "target", "source", "on_replica_loss"), _is_text)
    return _is_table(value, replicas=is_count, max_divergence=is_number, **texts)


def _is_rule(value: Any) -> bool:
    return _is_table(value, keep=is_count, every_updates=is_number, every_seconds=is_number)


def _is_size(value: Any) -> bool:
    return is_number(value) and 0 <= value <= MOST


def _are_figures(value: Any) -> bool:
    return _is_table(value) and all(type(one) in (int, float) for one in (value or {}).values())


_TEXT: Final = _of(str)
_MAYBE_TEXT: Final = _of(str, type(None))
_NUMBER: Final = _of(int, float)
_MAYBE_NUMBER: Final = _of(int, float, type(None))
_COUNT: Final = _between(0, MOST)
_LABEL: Final = _between(-1, MOST)
_SLOT: Final = _between(0, MOST_SLOTS - 1)
_SHARD: Final = _between(-1, MOST_SLOTS - 1)


def _maybe(holds: _Check) -> _Check:
    return lambda values: holds([one for one in values if one is not None])


_RUN: Final[dict[str, _Check]] = {
    "run": _TEXT,
    **dict.fromkeys(("policy", "workload", "store", "evaluate_on", "compression"), _MAYBE_TEXT),
    **dict.fromkeys(("workers", "samples", "parameters", "batch_size", "from_version"), _maybe(_COUNT)),
    **dict.fromkeys(("term", "staleness_bound"), _maybe(_COUNT)),
    "shards": _SLOT,
    "seed": _of(int, type(None)),
    "started": _maybe(_times),
    "policy_parameters": _each(_is_table),
    "replication": _each(_is_replication),
    "checkpoints": _each(_is_rule),
    "watch": _each(_is_table),
    "network": _each(lambda value: _is_table(value, gradient_bytes=_is_size)),
    "optimizer": _each(_is_shallow),
    "checkpoints_held": lambda values: not values,  # which is told of a store, and not by its log
}
_MEMBER: Final = {"slot": _SLOT, "incarnation": _COUNT, "process": _TEXT, "reason": _TEXT, "clock": _COUNT}
_SECONDS: Final = dict.fromkeys(("compute_s", "pull_s", "push_s", "wait_s"), _NUMBER)
_BY_KIND: Final[dict[str, dict[str, _Check]]] = {
    "run": _RUN,
    "joined": _MEMBER,
    "left": _MEMBER,
    "lost": _MEMBER,
    "start": {"slot": _SLOT, **dict.fromkeys(("sequence", "version", "clock", "min_clock"), _COUNT)},
    "gradient": {"slot": _SLOT, "sequence": _COUNT, "label": _LABEL, "loss": _MAYBE_NUMBER, **_SECONDS},
    "dropped": {"slot": _SLOT, "sequence": _COUNT, "reason": _TEXT},
    "transfer": {
        "slots": _lists_of(_SLOT),
        "sequences": _lists_of(_COUNT),
        "took_s": _NUMBER,
        "planned_s": _MAYBE_NUMBER,
        "host": _TEXT,
        "hosts": _lists_of(_TEXT),
    },
    "pull": {
        "slot": _SLOT,
        "sequence": _COUNT,
        "host": _TEXT,
        "relay": _MAYBE_TEXT,
        "sent": _of(bool),
        "took_s": _NUMBER,
        "planned_s": _MAYBE_NUMBER,
    },
    "servers": {"hosts": _lists_of(_TEXT), "bytes": _lists_of(_each(_is_size))},
    "rates": {"host": _TEXT, "out": _NUMBER, "into": _NUMBER},
    "aborted": {"slot": _SLOT, "sequence": _COUNT, "latency_s": _NUMBER},
    "commit": {
        "version": _COUNT,
        "block": _SLOT,
        "loss": _MAYBE_NUMBER,
        "rate": _NUMBER,
        "duration_s": _NUMBER,
        "slots": _lists_of(_SLOT),
        "sequences": _lists_of(_COUNT),
        "staleness": _lists_of(_COUNT),
    },
    "applied": {
        "version": _COUNT,
        "block": _SLOT,
        "visible_s": _NUMBER,
        "to_replica_bytes": _COUNT,
        "divergence": _MAYBE_NUMBER,
        "lag": _MAYBE_NUMBER,
    },
    "copy": {"shard": _SHARD, **dict.fromkeys(("copy", "process", "event", "reason"), _TEXT)},
    "promoted": {
        **dict.fromkeys(("role", "copy", "process", "signal"), _TEXT),
        "shard": _SHARD,
        "epoch": _COUNT,
        "updates_lost": _COUNT,
        "unit": _MAYBE_TEXT,
        "detected_seconds": _NUMBER,
        "promoted_seconds": _NUMBER,
        "distance_lost": _MAYBE_NUMBER,
        "bound": _MAYBE_NUMBER,
    },
    "resumed": {"role": _TEXT, "shard": _SHARD, "epoch": _COUNT, "first_commit_seconds": _NUMBER},
    "lost positions": {"shard": _SHARD, "epoch": _COUNT, "first": _COUNT, "last": _COUNT},
    "beyond bound": {"shard": _SHARD, "version": _COUNT, "step": _NUMBER, "bound": _NUMBER},
    "protection": {"shards": _lists_of(_SLOT)},
    "checkpoint": {
        "number": _COUNT,
        "version": _COUNT,
        "bytes": _COUNT,
        "seconds": _NUMBER,
        "event": _TEXT,
        "reason": _TEXT,
    },
    "evaluated": {
        "version": _COUNT,
        "loss": _MAYBE_NUMBER,
        "accuracy": _MAYBE_NUMBER,
        "metrics": _each(_are_figures),
    },
    "bad batch": {
        "samples": _lists_of(_COUNT),
        "tries": _COUNT,
        "size": _COUNT,
        "tensor": _TEXT,
        "text": _TEXT,
    },
    "cold replica": {"text": _TEXT},
    "note": {"text": _TEXT},
    "finished": {
        "outcome": _TEXT,
        "detail": _TEXT,
        "version": _COUNT,
        "seconds": _NUMBER,
        "loss": _MAYBE_NUMBER,
        "accuracy": _MAYBE_NUMBER,
        "metrics": _each(_are_figures),
    },
}

FIELDS: Final[Mapping[str, Mapping[str, _Check]]] = {kind: {"at": _times, **of} for kind, of in _BY_KIND.items()}
"""By kind and field, whether a column of such fields is of its kind."""


def all_of(segments: Iterable[Sequence[Record]]) -> Iterable[Record]:
    """Yield the records of segments, each once all of its segment are of their kinds."""
    for records in segments:
        yield from grouped(records).records
