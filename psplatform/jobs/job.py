"""The specification of one training."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from psplatform.core.plan import Stop
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.optimizers import SGD, Optimizer
from psplatform.jobs.plain import ASKED, job_fields, plain_fields
from psplatform.jobs.replication import Bounded, Replication
from psplatform.jobs.schedules import AnySchedule, Constant, schedule_from_plain
from psplatform.jobs.stragglers import SlowServers, Stragglers


class Job(BaseModel):
    """What to train, how, on how much, and when to stop.

    What is trained is given in one of three ways: `model`, `loss` and `data` (and `test`); a `task` of your own
    (`psplatform.tasks.seam.Task`); or the name of a bundled `workload` with its `options`.

    Raises
    ------
    ConfigurationError
        If a field is unknown, of the wrong type or out of range, in one sentence that names the field.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, frozen=True)

    model: Any = Field(None, description="callable that builds the nn.Module, or a module")
    loss: Any = Field(None, description="callable (output, target) -> scalar mean loss")
    data: Any = Field(None, description="torch dataset, pair of arrays (numpy, torch, Zarr, dask), or a callable")
    test: Any = Field(None, description="held-out data, of any of these kinds")
    task: Any = Field(None, description="a Task of your own instead of model, loss and data")
    workload: str | None = Field(None, description="name of a bundled workload instead of the above")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the workload")

    optimizer: Any = Field(default_factory=SGD, description="SGD, Adam, AdaGrad, RMSProp or Additive")
    schedule: Any = Field(default_factory=Constant, description="learning-rate schedule on top of the policy's rule")
    clip_norm: float | None = Field(None, gt=0, description="largest norm of a commit's mean gradient (psp: a block's)")
    policy: Any = Field("bsp", description="name of a policy, or a Policy")
    policy_options: dict[str, Any] = Field(default_factory=dict, description="parameters of the policy")

    workers: int | None = Field(
        None, ge=1, le=1_000_000, description="gradient workers to start with; none: all there are"
    )
    max_workers: int | None = Field(None, ge=1, le=1_000_000, description="most gradient workers; none: no limit")
    shards: int = Field(1, ge=1, le=4096, description="parts the parameters are divided into")
    block_elements: int = Field(65536, ge=1, description="elements of a block")
    resources: dict[str, dict[str, float]] = Field(
        default_factory=dict, description='Dask resources a "worker" or a "server" needs'
    )

    batch_size: int = Field(32, ge=1, description="samples of one gradient")
    micro_batches: int = Field(1, ge=1, description="parts a batch is computed in, to save memory")
    sampling: Literal["epoch", "replacement"] = Field("epoch", description="each sample once per epoch, or at random")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of everything random")
    stop: Stop = Field(default_factory=lambda: Stop(updates=1000), description="when the run ends")
    evaluate_on: Literal["held-out", "training"] = Field("held-out", description="data that versions are measured on")
    evaluate_every: int | None = Field(50, ge=1, description="updates between evaluations; none: the last only")

    store: str | None = Field(None, description="path or URL where the run persists; none: a new one below runs/")
    replication: Replication = Field(default_factory=Bounded, description="NoReplication, Chain or Bounded")
    checkpoints: Checkpoints = Field(default_factory=Checkpoints, description="how often, and how many are kept")
    device: str = Field("auto", description="where gradients are computed: auto, cpu, cuda, cuda:1 ...")
    transport: Literal["auto", "comms"] = Field(
        "auto", description="shared memory where a host is shared, or always Dask's comms"
    )
    torch_threads: int | None = Field(None, ge=1, description="torch threads of a worker; none: as it was started")
    stragglers: Stragglers | None = Field(None, description="slowness added to gradient workers")
    slow_servers: SlowServers | None = Field(None, description="slowness added to servers' answers")

    worker_lease_s: float = Field(15.0, ge=1, description="silence after which a gradient worker counts as lost")
    server_lease_s: float = Field(30.0, ge=1, description="longest silence of a server; most are noticed much earlier")
    absence_limit_s: float = Field(60.0, ge=1, description="longest time without any gradient worker")
    finish_limit_s: float = Field(120.0, ge=1, description="longest time for the last evaluation and saving")

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise _in_one_sentence(error) from None

    @property
    def replication_asked(self) -> bool:
        """Whether replication was asked for: where not, a cluster too small for replicas goes on without."""
        return "replication" in self.model_fields_set

    def to_plain(self, *, policy: str | None = None) -> dict[str, Any]:
        """Return the job as JSON values, with the names of what must be given again as ``callables``.

        Parameters
        ----------
        policy
            Name under which the job's policy is registered, where `policy` is a `Policy`; without it that must be
            given again as well.
        """
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return plain_fields(given, policy, replication_asked=self.replication_asked)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], **given: Any) -> Job:
        """Return the job that `to_plain` described, completed and overridden by the fields `given`.

        Raises
        ------
        ConfigurationError
            If something that has no plain form is not given.
        """
        job = cls(**job_fields(plain, given))
        if not plain.get(ASKED, True) and "replication" not in given:
            job.model_fields_set.discard("replication")
        return job

    @field_validator("optimizer", mode="before")
    @classmethod
    def _optimizer(cls, value: Any) -> Optimizer:
        if isinstance(value, Optimizer):
            return value
        if isinstance(value, str):
            return Optimizer.from_plain({"name": value})
        if isinstance(value, Mapping):
            return Optimizer.from_plain(value)
        raise ConfigurationError(f"optimizer must be an optimiser such as ps.SGD(), not {value!r}", field="optimizer")

    @field_validator("schedule", mode="before")
    @classmethod
    def _schedule(cls, value: Any) -> AnySchedule:
        if isinstance(value, str):
            return schedule_from_plain({"name": value})
        if isinstance(value, Mapping):
            return schedule_from_plain(dict(value))
        if not callable(getattr(value, "factor", None)):
            raise ConfigurationError(f"schedule must have a factor(updates, epochs), not {value!r}", field="schedule")
        return value  # type: ignore[no-any-return]  # anything with a factor will do

    @field_validator("policy", mode="before")
    @classmethod
    def _policy(cls, value: Any) -> str | Policy:
        if isinstance(value, str | Policy):
            return value
        raise ConfigurationError(f"policy must be a name or a Policy, not {value!r}", field="policy")

    @field_validator("stop", mode="before")
    @classmethod
    def _stop(cls, value: Any) -> Stop:
        return Stop(**_known(value, Stop, "stop")) if isinstance(value, Mapping) else value

    @field_validator("replication", mode="before")
    @classmethod
    def _replication(cls, value: Any) -> Replication:
        return Replication.from_plain(value)

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _checkpoints(cls, value: Any) -> Checkpoints:
        return Checkpoints.from_plain(value)

    @field_validator("stragglers", mode="before")
    @classmethod
    def _stragglers(cls, value: Any) -> Stragglers | None:
        if isinstance(value, Mapping):
            return Stragglers.from_plain(value)
        return Stragglers.parse(value) if isinstance(value, str) else value

    @field_validator("slow_servers", mode="before")
    @classmethod
    def _slow_servers(cls, value: Any) -> SlowServers | None:
        if isinstance(value, Mapping):
            return SlowServers.from_plain(value)
        return SlowServers.parse(value) if isinstance(value, str) else value

    @field_validator("resources")
    @classmethod
    def _resources(cls, value: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        for role in value:
            if role not in ("worker", "server"):
                raise ConfigurationError(f"resources speak of a worker or a server, not of {role!r}", field="resources")
        return value

    @model_validator(mode="after")
    def _together(self) -> Job:
        _check_one_subject(self)
        if not self.stop.ends:
            raise ConfigurationError(
                "stop has no condition; give updates, epochs, seconds, target_loss or target_accuracy", field="stop"
            )
        if self.max_workers is not None and self.max_workers < (self.workers or 1):
            raise ConfigurationError(
                f"max_workers must be at least workers: {self.max_workers} < {self.workers}", field="max_workers"
            )
        if self.micro_batches > self.batch_size:
            raise ConfigurationError(
                f"micro_batches must be at most batch_size: {self.micro_batches} > {self.batch_size}",
                field="micro_batches",
            )
        return self


def _check_one_subject(job: Job) -> None:
    supervised = [name for name in ("model", "loss", "data") if getattr(job, name) is not None]
    given = [name for name in ("task", "workload") if getattr(job, name) is not None]
    ways = given + (["model, loss and data"] if supervised else [])
    if len(ways) != 1:
        found = " and ".join(ways) or "nothing"
        raise ConfigurationError(
            f"say what to train in one way, with model, loss and data, or a task, or a workload; given: {found}",
            field="model",
        )
    missing = [name for name in ("model", "loss", "data") if getattr(job, name) is None]
    if supervised and missing:
        raise ConfigurationError(f"a model needs its loss and data: {missing[0]} is missing", field=missing[0])


def _known(given: Mapping[str, Any], kind: type, what: str) -> dict[str, Any]:
    names = [field.name for field in fields(kind)]
    for name in given:
        if name not in names:
            raise ConfigurationError(f"{what} has no {name!r}; it has {', '.join(names)}", field=what)
    return dict(given)


def _in_one_sentence(error: ValidationError) -> ConfigurationError:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "job"
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(where, list(Job.model_fields), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return ConfigurationError(f"a job has no field {where!r}{hint}", field=where)
    wanted = first["msg"][0].lower() + first["msg"][1:].replace("Input", "it")
    wanted = wanted.removeprefix("input ")
    return ConfigurationError(f"{where}: {wanted}, not {first['input']!r}", field=where)
