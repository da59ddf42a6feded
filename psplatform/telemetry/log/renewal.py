"""The records by which a log that was lost begins anew: what readers must know of a run that goes on.

What was logged before is gone.
"""

from __future__ import annotations

from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.read_model import RunView

_GONE = ("lost", "left")


def records_to_go_on(view: RunView) -> list[Record]:
    """Return the records that bring an empty picture to where that of a run stands, as far as what follows needs it.

    Those are the run's description, the workers and copies that live, which shards are not protected, the hosts of
    servers, and the newest evaluation.  Counts, curves and what else was logged before are not among them.
    """
    if not view.run:
        return []  # it has not begun
    at = view.seconds
    run = {**view.run, "from_version": view.updates, "term": view.protection.term}
    records: list[Record] = [{"kind": "run", "at": at, **run}]
    for slot, worker in sorted(view.workers.items()):
        if worker.status not in _GONE:
            place = {"slot": slot, "incarnation": worker.incarnation, "process": worker.process}
            records.append({"kind": "joined", "at": at, **place, "clock": worker.clock})
    for copies in view.protection.copies.values():
        for copy in copies.values():
            if copy.status not in _GONE:
                known = {"shard": copy.shard, "copy": copy.copy, "process": copy.process, "reason": copy.reason}
                records.append({"kind": "copy", "at": at, **known, "event": copy.status})
    records.append({"kind": "protection", "at": at, "shards": list(view.protection.unprotected)})
    if (parts := view.transfers.interfaces.parts) is not None:
        records.append({"kind": "servers", "at": at, "hosts": list(parts), "bytes": list(parts.values())})
    for newest in view.evaluations.items[-1:]:
        measured = {"version": newest.version, "loss": newest.loss, "accuracy": newest.accuracy}
        records.append({"kind": "evaluated", "at": at, **measured, "metrics": dict(view.metrics)})
    return records
