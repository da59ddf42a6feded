"""What the processes of a run import, loaded before they are needed.

``dask worker --preload psplatform.preload`` loads it while Dask workers start, so that the first run on them begins at
once.  The processes of an embedded cluster are forked from one that has loaded it.

What is there then is excluded from the garbage collection of cycles: nearly all of it stays for as long as the process,
and looking at it keeps an event loop waiting for a tenth of a second.
"""

from __future__ import annotations

import gc

import psplatform.core.validation
import psplatform.jobs.schedules
import psplatform.policies.registry
import psplatform.runtime.actors.coordinator.host
import psplatform.runtime.actors.copy_host
import psplatform.runtime.actors.evaluator_host
import psplatform.runtime.actors.worker.host
import psplatform.runtime.trial
import psplatform.workloads.registry  # noqa: F401

gc.collect()
gc.freeze()
