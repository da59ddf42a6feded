"""``psplatform train``: a bundled workload, or the job in a file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from psplatform.cli.options import JOB_FIELDS, JOB_FLAGS, STOP_FIELDS, with_flags
from psplatform.cli.page import Page, require_visible, with_page
from psplatform.cli.progress import ProgressLine
from psplatform.cli.protection import PROTECTION, protection_fields
from psplatform.cli.signals import interrupted_by_signals
from psplatform.client.clusters.forking import begin
from psplatform.client.starting.job_files import read_job_file, read_trace, with_horizon
from psplatform.errors import ConfigurationError

_DERIVED = ("policy", "optimizer", "replication")
"""Fields of a job whose options say more than a value."""


@click.command()
@click.argument("what", metavar="WORKLOAD|JOB.YAML")
@click.option("--scheduler", metavar="ADDRESS", help="Scheduler to run on; a cluster on this machine if not given.")
@with_flags(JOB_FLAGS)
@with_page
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def train(what: str, *, scheduler: str | None, dashboard: bool, allow_chaos: bool, as_json: bool, **given: Any) -> None:
    """Train WORKLOAD (digits, mlp, mnist, cifar10), or the job described in a YAML file, and watch it."""
    page = Page(wanted=dashboard, allow_chaos=allow_chaos, stays=not as_json)
    fields = job_fields(what, given)
    of_file = fields.pop("scheduler", None)
    run_job(fields, scheduler or of_file, as_json=as_json, page=page)


def run_job(fields: Mapping[str, Any], scheduler: str | None, *, as_json: bool, page: Page | None = None) -> None:
    """Start the job and follow it to its end."""
    # Loaded here, when it is known that the arguments make sense, because it takes seconds.
    from psplatform.cli.follow import follow  # noqa: PLC0415
    from psplatform.jobs.job import Job  # noqa: PLC0415

    job = Job(**_checked_policy(fields))
    page = page or Page(wanted=False)
    if page.wanted:
        require_visible(job.store)
    if scheduler is None:
        begin()  # what the processes of the cluster import is imported while this program does
    with interrupted_by_signals(), page, ProgressLine() as line:
        line.say("loading torch and Dask")
        from psplatform.client.clusters.connecting import connect  # noqa: PLC0415
        from psplatform.client.launch import train  # noqa: PLC0415

        client = connect(scheduler) if scheduler else None
        try:
            run = train(job, client, report=line.say)
            page.open(run, embedded=client is None)
            with contextlib.closing(run):
                follow(run, line, as_json=as_json, embedded=client is None)
        finally:
            if client is not None:
                client.close()


def job_fields(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job's fields: the file's or the workload's own, overridden by the command line's.

    Raises
    ------
    ConfigurationError
        If the file or an option cannot be understood.
    """
    fields: dict[str, Any] = _from_file(Path(what)) if what.endswith((".yaml", ".yml")) else {"workload": what}
    fields |= {name: given[name] for name in JOB_FIELDS if name not in _DERIVED and given.get(name) is not None}
    if given.get("policy"):
        fields["policy"] = given["policy"]
        fields.pop("policy_options", None)
    for field, option in (("policy_options", "policy_options"), ("options", "workload_options")):
        fields[field] = {**(fields.get(field) or {}), **pairs(given.get(option, ()), field)}
    defaults = _workload_defaults(fields)
    fields.setdefault("batch_size", int(defaults["batch_size"]) if "batch_size" in defaults else 32)
    fields["optimizer"] = _optimizer(fields.get("optimizer"), given, defaults)
    fields["stop"] = _stop(fields.get("stop", {}), given, defaults)
    fields["stragglers"] = _stragglers(fields.get("stragglers"))
    fields |= protection_fields({name: fields.pop(name, None) for name in PROTECTION}, given)
    if given.get("fabric"):
        described = fields.get("network") or {}
        fields["network"] = {**described, "fabric": described.get("fabric") or {}}
    if "schedule" in fields:
        fields["schedule"] = with_horizon(fields["schedule"], fields["stop"])
    return fields


def _from_file(path: Path) -> dict[str, Any]:
    fields = read_job_file(path)
    for name in ("policy_options", "options", "stop", "network"):
        _require_mapping(fields.get(name), name)
    for name, words in (("optimizer", str), ("replication", str), ("checkpoints", str | int)):
        if not isinstance(fields.get(name), words):
            _require_mapping(fields.get(name), name)
    if not isinstance(fields.get("scheduler", ""), str):
        raise ConfigurationError(f"scheduler must be an address, not {fields['scheduler']!r}", field="scheduler")
    return fields


def _require_mapping(value: object, field: str) -> None:
    if value is not None and not isinstance(value, dict):
        raise ConfigurationError(f"{field} must be a mapping of names to values, not {value!r}", field=field)


def _workload_defaults(fields: Mapping[str, Any]) -> Mapping[str, float]:
    from psplatform.workloads.registry import find_workload  # noqa: PLC0415  brings numpy

    return find_workload(str(fields["workload"])).defaults if "workload" in fields else {}


def _optimizer(described: Any, given: Mapping[str, Any], defaults: Mapping[str, float]) -> dict[str, Any]:
    spec = {"name": described} if isinstance(described, str) else dict(described or {})
    spec.setdefault("name", "sgd")
    if given.get("optimizer") not in (None, spec["name"]):
        spec = {"name": given["optimizer"]}  # the file's settings are those of the optimiser that it names
    if spec == {"name": "sgd"}:
        spec |= {name: defaults[name] for name in ("lr", "momentum") if name in defaults}
    return spec | {name: given[name] for name in ("lr", "momentum", "weight_decay") if given.get(name) is not None}


def stop_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions under which a run ends that the command line speaks of."""
    return {name: given[name] for name in STOP_FIELDS if given.get(name) is not None}


def _stop(described: Any, given: Mapping[str, Any], defaults: Mapping[str, float]) -> dict[str, Any]:
    asked = stop_fields(given)
    if asked or described:
        return {**(described or {}), **asked}
    # Three times the passes that the workload needs by itself: slower policies get there too, and every run ends.
    stop = {name: defaults[name] for name in ("target_accuracy",) if name in defaults}
    return {**stop, **({"epochs": 3 * defaults["epochs"]} if "epochs" in defaults else {"updates": 1000})}


def _stragglers(described: Any) -> Any:
    if not isinstance(described, str):
        return described
    from psplatform.jobs.stragglers import Stragglers  # noqa: PLC0415  brings numpy

    return Stragglers.parse(described, read=read_trace)


def _checked_policy(fields: Mapping[str, Any]) -> dict[str, Any]:
    # Before torch and Dask are loaded, so that a wrong name is refused at once.
    from psplatform.policies.registry import make_policy  # noqa: PLC0415

    if isinstance(fields.get("policy", "bsp"), str):
        make_policy(fields.get("policy", "bsp"), fields.get("policy_options"))
    return dict(fields)


def pairs(texts: tuple[str, ...], field: str) -> dict[str, str]:
    """Return the options written as KEY=VALUE.

    Raises
    ------
    ConfigurationError
        Naming the first that is not.
    """
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise ConfigurationError(f"write options as KEY=VALUE, not {text!r}", field=field)
        found[name.strip()] = value.strip()
    return found
