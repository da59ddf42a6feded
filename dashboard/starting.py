"""Starting a run of a job: checked here, and then a program of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psplatform.client.starting.job_files import read_trace, with_horizon
from psplatform.dashboard import programs
from psplatform.dashboard.forms import jobs
from psplatform.dashboard.settings import current
from psplatform.jobs.job import Job
from psplatform.jobs.stragglers import Stragglers
from psplatform.workloads.registry import WORKLOADS, find_workload


def start_job(job: Mapping[str, Any]) -> str:
    """Start a run of the job; return its store.

    Raises
    ------
    ConfigurationError
        If the job makes no sense, or the program cannot be started.
    """
    require_sensible(job)
    store = jobs.new_store(job)
    scheduler = current().starts_on
    where = ["--scheduler", scheduler] if scheduler else []
    programs.start(["train", jobs.write_job(job), "--store", store, *where, "--json"])
    return store


def require_sensible(job: Mapping[str, Any]) -> None:
    """Refuse a job whose fields do not fit together, before a program is started for it.

    Raises
    ------
    ConfigurationError
        Naming the field.
    """
    stop = job.get("stop") or {name: value for name, value in usual(job).items() if name == "target_accuracy"}
    fields = {**job, "stop": stop or {"updates": 1000}}
    if "schedule" in fields:
        fields["schedule"] = with_horizon(fields["schedule"], fields["stop"])
    if isinstance(fields.get("stragglers"), str):
        # Only a job file may name a trace: fields of the page and jobs of stores that do are refused before.
        fields["stragglers"] = Stragglers.parse(fields["stragglers"], read=read_trace)
    Job(**fields)


def usual(job: Mapping[str, Any]) -> Mapping[str, float]:
    """Return the settings that suit the job's workload; none where it has no bundled one."""
    return find_workload(str(job["workload"])).defaults if job.get("workload") in WORKLOADS else {}
