"""Jobs as mappings of their fields: from forms and stores, to YAML and to the command that starts the same."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping
from typing import Any, Final

from psplatform.client.starting.job_files import read_job_file
from psplatform.core.parameters import declared
from psplatform.core.plan import Stop
from psplatform.dashboard.records import write_private
from psplatform.dashboard.settings import Settings, current
from psplatform.errors import ConfigurationError
from psplatform.jobs.job import Job
from psplatform.jobs.job_file import text_of
from psplatform.jobs.metrics import metrics_of
from psplatform.jobs.network import Fabric, Network
from psplatform.jobs.optimizers import SGD
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.policies.registry import policy_class, policy_names
from psplatform.workloads.registry import WORKLOADS, find_workload

_NOT_OF_THE_JOB: Final = ("store", "scheduler", "replication_asked")

_FLAGS: Final = {
    "workers": "--workers",
    "max_workers": "--max-workers",
    "shards": "--shards",
    "clip_norm": "--clip-norm",
    "batch_size": "--batch-size",
    "sampling": "--sampling",
    "bad_batches": "--bad-batches",
    "evaluate_every": "--evaluate-every",
    "evaluate_on": "--evaluate-on",
    "metrics": "--metrics",
    "watch": "--watch",
    "stragglers": "--stragglers",
    "slow_servers": "--slow-servers",
    "device": "--device",
    "transport": "--transport",
    "compression": "--compression",
    "seed": "--seed",
    "schedule": "--schedule",
    "policy": "--policy",
}
_NESTED: Final[dict[str, dict[str, str]]] = {
    "optimizer": {
        "name": "--optimizer",
        "lr": "--lr",
        "momentum": "--momentum",
        "weight_decay": "--weight-decay",
    },
    "replication": {
        "mode": "--replication",
        "max_divergence": "--max-divergence",
        "replicas": "--replicas",
        "source": "--replication-source",
        "target": "--replication-target",
        "on_replica_loss": "--on-replica-loss",
        "on_isolation": "--on-isolation",
    },
    "checkpoints": {"every": "--checkpoint-every", "every_updates": "--checkpoint-every", "keep": "--keep-checkpoints"},
    "stop": {name: "--" + name.replace("_", "-") for name in declared(Stop)},
}
"""Fields with parts, and the flag of each part; the first is what a plain word stands for."""

_SHAPES: Final[dict[str, type | tuple[type, ...]]] = {
    "workload": str,
    "policy": str,
    "options": Mapping,
    "policy_options": Mapping,
    "stop": Mapping,
    "optimizer": (str, Mapping),
    "schedule": (str, Mapping),
    "replication": (str, Mapping),
    "checkpoints": (str, int, Mapping),
    "compression": str,
    "network": Mapping,
}
"""What the fields of a job with choices or parts are."""

_LONGEST_NAME: Final = 60


def job_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job that a store describes, without its store.

    Raises
    ------
    ConfigurationError
        If the store does not describe it, or it is made of code, which no store contains.
    """
    described = description.get("job")
    job = dict(described) if isinstance(described, Mapping) else {}
    for name, nothing in (("metrics", {}), ("network", Network().to_plain()), ("compression", "none")):
        if job.get(name) == nothing:
            del job[name]
    if not job:
        raise ConfigurationError("this run's store does not describe its job; choose another run", field="job")
    code = job.pop("callables", None) or []
    if code:
        named = ", ".join(map(str, code))
        raise ConfigurationError(
            f"the job's {named} is code, which a store does not contain; start it from its own program", field="job"
        )
    if not job.pop("replication_asked", True):
        job.pop("replication", None)
    found = _checked({name: value for name, value in job.items() if _says(name, value)})
    _require_no_path(found)
    return found


def _require_no_path(job: Mapping[str, Any]) -> None:
    """Refuse a stored job that names a file: a store is anybody's text, and its files would be read on this machine."""
    if isinstance(job.get("stragglers"), str):
        Stragglers.parse(job["stragglers"])  # which refuses a trace
    policy = str(job.get("policy", ""))
    owners: list[tuple[Any, str]] = [(policy_class(policy), "policy_options")] if policy in policy_names() else []
    if job.get("workload") in WORKLOADS:
        owners.append((find_workload(str(job["workload"])).options, "options"))
    for owner, field in owners:
        for name, value in (job.get(field) or {}).items():
            if name in declared(owner) and declared(owner)[name].path and value is not None:
                text = f"the stored job's {name} names a file; write the job into a file and give it with --job"
                raise ConfigurationError(text, field=name)


def _says(name: str, value: Any) -> bool:
    """Whether a field says something: none does where it is the default, and where there is no such field."""
    known = declared(Job)
    return value is not None or (name in known and known[name].default is not None)


def job_in(path: str) -> dict[str, Any]:
    """Return the fields in a job file.

    Raises
    ------
    ConfigurationError
        If it cannot be read.
    """
    return _checked(read_job_file(path))


def scheduler_in(path: str) -> str | None:
    """Return the scheduler that a job file names, if it does.

    Raises
    ------
    ConfigurationError
        If it cannot be read.
    """
    named = read_job_file(path).get("scheduler")
    return str(named) if named else None


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job that forms can show, or raise `ConfigurationError`."""
    for name, kinds in _SHAPES.items():
        value = fields.get(name)
        if value is not None and not isinstance(value, kinds):
            words = "a name" if kinds is str else "a mapping of names to values"
            raise ConfigurationError(f"the job's {name} must be {words}, not {value!r}; correct it", field=name)
    if fields.get("workload") is not None:
        find_workload(fields["workload"])
    return {name: value for name, value in fields.items() if name not in _NOT_OF_THE_JOB}


def slowness_of(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the slowness that a job injects by field, in the words that forms and the command line take."""
    stragglers, servers = job.get("stragglers"), job.get("slow_servers")
    if isinstance(stragglers, Mapping):
        stragglers = _in_clauses(Stragglers.from_plain(stragglers))
    if isinstance(servers, Mapping):
        found = SlowServers.from_plain(servers)
        servers = f"shards={'+'.join(map(str, found.shards))},seconds={found.seconds},chance={found.chance}"
    said = {"stragglers": stragglers, "slow_servers": servers}
    return {name: str(words) for name, words in said.items() if words}


def metrics_words(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the metrics of a job in the words that forms and the command line take, where these can say them."""
    metrics = job.get("metrics")
    if not isinstance(metrics, Mapping) or not metrics:
        return {}
    said = metrics_of(dict(metrics))
    return {"metrics": ",".join(said)} if said == metrics_of(list(said)) else {}


def _in_clauses(found: Stragglers) -> str:
    clauses = [str(found.distribution)] if found.distribution is not None else []
    if found.trace is not None:
        clauses.append(f"a trace of {len(found.trace)} workers")
    if found.slow_chance:
        clauses.append(f"slow:chance={found.slow_chance:g},factor={found.slow_factor:g}")
    if found.factors:
        clauses.append(f"factors:{','.join(f'{one:g}' for one in found.factors)}")
    return ";".join(clauses)


def as_yaml(job: Mapping[str, Any]) -> str:
    """Return a job as the YAML of a job file."""
    return text_of(job)


def as_command(job: Mapping[str, Any], settings: Settings) -> str | None:
    """Return the command that starts the job without a job file; ``None`` where only a job file can say it."""
    words = _words(job)
    if words is None:
        return None
    scheduler = ["--scheduler", settings.starts_on] if settings.starts_on else []
    return shlex.join(["psplatform", "train", *words, *scheduler])


def _words(job: Mapping[str, Any]) -> list[str] | None:
    rest = {name: value for name, value in job.items() if _says(name, value)}
    workload = rest.pop("workload", None)
    if workload not in WORKLOADS:
        return None
    words = [str(workload), *_pairs("-w", rest.pop("options", None))]
    rest |= metrics_words(rest)
    if rest.get("keep_best") in (True, False) and rest.pop("keep_best"):
        words.append("--keep-best")
    for name, flag in _FLAGS.items():
        if isinstance(rest.get(name), str | int | float):
            words += [flag, str(rest.pop(name))]
    words += _pairs("-o", rest.pop("policy_options", None))
    words += _network(rest)
    _complete(rest, str(workload))
    for field, flags in _NESTED.items():
        words += _nested(rest, field, flags)
    return words if not rest else None


def _pairs(flag: str, given: Mapping[str, Any] | None) -> list[str]:
    words = []
    for name, value in (given or {}).items():
        words += [flag, f"{name}={','.join(map(str, value)) if isinstance(value, tuple | list) else value}"]
    return words


def _complete(rest: dict[str, Any], workload: str) -> None:
    """Say what a job leaves to the optimiser: a command that says less of it leaves that to the workload."""
    given = rest.get("optimizer")
    if isinstance(given, Mapping) and given.get("name", SGD.name) == SGD.name and given.keys() - {"name"}:
        usual = {name: one.default for name, one in declared(SGD).items() if name in WORKLOADS[workload].defaults}
        rest["optimizer"] = {"name": SGD.name, **usual, **given}


def _nested(rest: dict[str, Any], field: str, flags: Mapping[str, str]) -> list[str]:
    """Take a field out of what is left if flags can say all of it; return the words that do."""
    given = rest.get(field)
    if given is None:
        return []
    first = next(iter(flags))
    parts = dict(given) if isinstance(given, Mapping) else {first: given}
    parts = {name: value for name, value in parts.items() if value not in (None, [], ())}
    if isinstance(targets := parts.get("targets"), Mapping):
        parts["targets"] = ",".join(f"{name}={value}" for name, value in targets.items())
    if field == "replication" and not _say_bound(parts):
        return []
    if parts.keys() - flags.keys() or not all(isinstance(value, str | int | float) for value in parts.values()):
        return []
    del rest[field]
    return [str(word) for name, value in parts.items() for word in (flags[name], value)]


def _network(rest: dict[str, Any]) -> list[str]:
    """Take the field ``network`` out of what is left if a flag can say all of it; return the words that do."""
    asked = Network.from_plain(rest.get("network"))
    if asked not in (Network(), Network(Fabric())):
        return []
    rest.pop("network", None)
    return ["--fabric"] if asked.fabric is not None else []


def _say_bound(parts: dict[str, Any]) -> bool:
    """Write a bound and its unit in one word, as the command line does; return whether that can be."""
    unit, bound = parts.pop("unit", None), parts.get("max_divergence")
    if bound is None or isinstance(bound, str):
        return unit is None
    ending = "updates" if unit == "updates" else ""
    parts["max_divergence"] = f"{int(bound) if ending and float(bound).is_integer() else bound}{ending}"
    return True


def new_store(job: Mapping[str, Any]) -> str:
    """Return a place in the dashboard's folder for a new run of the job."""
    words = f"{job.get('workload', 'job')}-{job.get('policy', 'bsp')}"
    name = "".join(one if one.isalnum() or one == "-" else "-" for one in words)[:_LONGEST_NAME]
    return f"{current().folder.rstrip('/')}/{name}-{uuid.uuid4().hex[:6]}.zarr"


def write_job(job: Mapping[str, Any]) -> str:
    """Write the job into a file of this user's own; return its path.

    Raises
    ------
    ConfigurationError
        If it cannot be written.
    """
    return write_private("jobs", f"{uuid.uuid4().hex[:12]}.yaml", as_yaml(job))
