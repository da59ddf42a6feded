"""How far one update of a run moves its parameters."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from psplatform.client.launch import train
from psplatform.errors import ClusterError
from psplatform.jobs.job import Job
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import Record

_LIMIT_S: Final = 300.0


def mean_step(job: Job) -> float:
    """Return the mean Euclidean norm of the updates in the second half of a run of `job`, which has replicas."""
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "run.zarr")
        run = train(job.model_copy(update={"store": store}))
        try:
            run.wait(_LIMIT_S)
            records = [record for found, _ in LogReader(store).iter_from() for record in found]
        finally:
            run.close()
    return mean_of(records)


def mean_of(records: Sequence[Record]) -> float:
    """Return the mean norm of an update that the second half of a log tells.

    Raises
    ------
    ClusterError
        If it tells none.
    """
    behind = [record["divergence"] / record["lag"] for record in records if record.get("lag")]
    if not behind:
        raise ClusterError("no replica was ever behind, so the log does not tell how far an update leads")
    return fmean(behind[len(behind) // 2 :])
