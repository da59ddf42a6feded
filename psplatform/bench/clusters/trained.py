"""One training on a cluster of this machine that leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from psplatform.client.launch import train
from psplatform.jobs.job import Job


def train_to_the_end(job: Job, limit_s: float) -> dict[str, Any]:
    """Return the summary of a run of `job`, whose store is thrown away; it may take `limit_s` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        run = train(job.model_copy(update={"store": str(Path(folder) / "run.zarr")}))
        try:
            return run.wait(limit_s)
        finally:
            run.close()
