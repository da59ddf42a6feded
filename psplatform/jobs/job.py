"""The specification of one training."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, Strict, ValidationError, model_validator

from psplatform.core.limits import LARGEST, nearest
from psplatform.core.parameters import built, declared
from psplatform.core.plan import Stop
from psplatform.core.policy import Policy
from psplatform.core.validation import refused
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.compression import NONE, Compression
from psplatform.jobs.metrics import Metric, metrics_of
from psplatform.jobs.network import Network
from psplatform.jobs.optimizers import SGD, Additive, Optimizer
from psplatform.jobs.plain import ASKED, job_fields, plain_fields
from psplatform.jobs.replication import Bounded, Replication
from psplatform.jobs.schedules import Constant, schedule_from_plain, usable
from psplatform.jobs.stragglers import SlowServers, Stragglers
from psplatform.jobs.torch_optimizers import translated

_CALLABLES: Final = {
    "model": "an nn.Module or a callable that builds one",
    "loss": "a callable of output and target",
    "step": "a callable of model and batch",
    "collate": "a callable of a list of samples",
    "predict": "a callable of model and batch",
}


def _optimizer(value: Any) -> Any:
    if isinstance(value, str | Mapping):
        return Optimizer.from_plain({"name": value} if isinstance(value, str) else value)
    if isinstance(value, type) and issubclass(value, Optimizer):
        text = f"optimizer is the class {value.__name__}; hand in one of its objects: {value.__name__}()"
        raise ConfigurationError(text, field="optimizer")
    return value


def _place(value: Any) -> Any:
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def _schedule(value: Any) -> Any:
    if isinstance(value, str | Mapping):
        return schedule_from_plain({"name": value} if isinstance(value, str) else dict(value))
    return usable(value)


def _policy(value: Any) -> str | Policy:
    if isinstance(value, str | Policy):
        return value
    remedy = f"; write {value.__name__}()" if isinstance(value, type) and issubclass(value, Policy) else ""
    raise ConfigurationError(f"policy must be a name or a Policy, not {value!r}{remedy}", field="policy")


def _stop(value: Any) -> Any:
    return built(Stop, value, "stop has no", field="stop") if isinstance(value, Mapping) else value


def _slowness(kind: type[Stragglers | SlowServers]) -> BeforeValidator:
    def read(value: Any) -> Any:
        if isinstance(value, Mapping):
            return kind.from_plain(value)
        return kind.parse(value) if isinstance(value, str) else value

    return BeforeValidator(read)


class Job(BaseModel):
    """What to train, how, on how much, and when to stop.

    What is trained is given in one of three ways: `model`, `data` (and `test`) with a `loss` or a `step`; a `task` of
    your own (`psplatform.tasks.seam.Task`); or the name of a bundled `workload` with its `options`.

    `data` are samples of any structure: arrays (NumPy, torch, Zarr, dask, pandas) with one entry per sample, as a pair
    (inputs, targets), a longer tuple, a dict, a named tuple or a dataclass of them; a map-style data set or list, whose
    samples are such structures; a torch `DataLoader`; or a callable that returns one of these where it is read.
    `collate` makes a batch of a list of samples, of sequences of different lengths for example; without it torch's
    `default_collate` does.  Every tensor of a batch is moved to the device.

    * With ``loss(output, targets)`` a batch must be a pair (inputs, targets).  The model is called as
      ``model(**inputs)`` where the inputs are a dict, else as ``model(inputs)``; integer targets become int64.
    * With ``step(model, batch)`` it may be anything.  The same step measures held-out data, so there is no accuracy,
      unless ``predict(model, batch)`` returns outputs and targets for it.

    Both return the mean over the batch's samples, as a scalar tensor.  Numbers arrive in the types that the data have,
    except that float32 and float64 become the type of the model's parameters, unless `collate` chose it.

    Of a `DataLoader` its data set is used, its `collate_fn` unless the job has a `collate`, and its batch size where
    the job names no `batch_size`.  That is the number of samples of one gradient: a round of `bsp` with n workers has n
    times as many.  The batch size of a loader that a callable returns is not known in time, so it is not used.  Order
    and shuffling follow the job's `sampling`, and each worker reads its own samples; a sampler of your own and data
    without an index are refused.

    Evaluations measure `metrics` beside the loss, and the accuracy where outputs are scores of classes: names of
    bundled ones (``accuracy``, ``f1``, ``perplexity``), functions of all outputs and targets, torchmetrics objects, or
    a mapping of names to these and to `ps.Metric`, which says whether lower values are better.  `watch` is the one by
    which versions are compared: `Stop`'s ``patience`` counts evaluations in which it got no better, and with
    `keep_best` the best version's model is saved beside the last.

    `optimizer` is a `ps.SGD`, `ps.Adam`, `ps.AdamW`, `ps.AdaGrad`, `ps.RMSProp` or `ps.Additive`, or an object of your
    own class based on `ps.CustomOptimizer`. A class or an object of `torch.optim` is translated where that is possible.

    What the main script or a notebook defines is sent to the processes of a run.  Functions and classes of a module are
    sent as its name: on a cluster, every Dask worker that takes part must be able to import it, or the job is refused
    with the name of the module.  ``cloudpickle.register_pickle_by_value(module)`` lets what a module holds be sent too.

    Code of yours that ends its process (``os._exit``, a crash, out of memory) is named with what ended it
    (`psplatform.errors.ProcessDied`): at a first gradient at once, later when three processes in a row have died.

    Raises
    ------
    ConfigurationError
        If a field is unknown, of the wrong type or out of range, in one sentence that names the field.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, frozen=True)

    model: Any = Field(None, description="callable that builds the nn.Module, or a module")
    loss: Any = Field(None, description="callable (output, targets) -> scalar mean loss")
    step: Any = Field(None, description="callable (model, batch) -> scalar mean loss, instead of loss")
    data: Any = Field(None, description="data set, arrays in any structure, torch DataLoader, or a callable")
    test: Any = Field(None, description="held-out data, of any of these kinds")
    collate: Any = Field(None, description="callable (list of samples) -> batch; none: torch's default_collate")
    predict: Any = Field(None, description="callable (model, batch) -> (outputs, targets), for metrics beside a step")
    task: Any = Field(None, description="a Task of your own instead of model, loss and data")
    workload: str | None = Field(None, description="name of a bundled workload instead of the above")
    options: dict[str, Any] = Field(default_factory=dict, description="options of the workload")

    optimizer: Annotated[InstanceOf[Optimizer], BeforeValidator(_optimizer)] = Field(
        default_factory=SGD, description="optimiser of the servers: sgd, adam, adamw, adagrad, rmsprop or additive"
    )
    schedule: Annotated[Any, BeforeValidator(_schedule)] = Field(
        default_factory=Constant,
        description="learning-rate schedule on top of the policy's rule: constant, step or cosine",
    )
    clip_norm: float | None = Field(None, gt=0, description="largest norm of a commit's mean gradient (psp: a block's)")
    policy: Annotated[Any, BeforeValidator(_policy)] = Field(
        "bsp", description="synchronisation policy: a name that `psplatform policies` lists; in Python also a Policy"
    )
    policy_options: dict[str, Any] = Field(default_factory=dict, description="parameters of the policy")

    workers: int | None = Field(
        None, ge=1, le=1_000_000, description="gradient workers to start with; none: all there are"
    )
    max_workers: int | None = Field(None, ge=1, le=1_000_000, description="most gradient workers; none: no limit")
    shards: int = Field(
        1, ge=1, le=4096, description="parts the parameters are divided into, at most one for each of them"
    )
    block_elements: int = Field(65536, ge=1, le=LARGEST, description="elements of a block")
    resources: dict[str, dict[str, float]] = Field(
        default_factory=dict, description='Dask resources a "worker" or a "server" needs'
    )

    batch_size: int = Field(32, ge=1, le=LARGEST, description="samples of one gradient")
    micro_batches: int = Field(1, ge=1, le=LARGEST, description="parts a batch is computed in, to save memory")
    sampling: Literal["epoch", "replacement"] = Field("epoch", description="each sample once per epoch, or at random")
    bad_batches: Literal["skip", "end"] = Field(
        "skip", description="what follows when no gradient of a batch is finite: skip it, or end the run"
    )
    seed: int = Field(0, ge=0, le=LARGEST, description="seed of everything random")
    stop: Annotated[InstanceOf[Stop], BeforeValidator(_stop)] = Field(
        default_factory=lambda: Stop(updates=1000), description="when the run ends"
    )
    evaluate_on: Literal["held-out", "training"] = Field("held-out", description="data that versions are measured on")
    evaluate_every: int | None = Field(
        50, ge=1, le=LARGEST, description="updates between evaluations; none: the last only"
    )
    metrics: Annotated[dict[str, Metric], BeforeValidator(metrics_of)] = Field(
        default_factory=dict, description="what evaluations measure beside the loss, such as f1,perplexity"
    )
    watch: str = Field("loss", description="metric by which evaluated versions are compared")
    keep_best: Annotated[bool, Strict()] = Field(False, description="save the best version's model beside the last")

    store: Annotated[str | None, BeforeValidator(_place)] = Field(
        None, description="path or URL where the run persists; none: a new one below runs/"
    )
    replication: Annotated[InstanceOf[Replication], BeforeValidator(Replication.from_plain)] = Field(
        default_factory=Bounded, description="how servers are copied: none, chain or bounded"
    )
    checkpoints: Annotated[InstanceOf[Checkpoints], BeforeValidator(Checkpoints.from_plain)] = Field(
        default_factory=Checkpoints, description="when checkpoints are written: 200 (updates), 10s (seconds) or none"
    )
    device: str = Field("auto", description="where gradients are computed: auto, cpu, cuda, cuda:1 and so on")
    transport: Literal["auto", "comms"] = Field(
        "auto", description="shared memory and Unix sockets where a host is shared, or always Dask's comms"
    )
    compression: Annotated[InstanceOf[Compression], BeforeValidator(Compression.from_plain)] = Field(
        default_factory=Compression, description="how gradients are compressed: none, bf16, fp16 or topk:0.01"
    )
    network: Annotated[InstanceOf[Network], BeforeValidator(Network.from_plain)] = Field(
        default_factory=Network,
        description="whether transfers are planned, such as {fabric: {tick_s: 0.1}}",
    )
    torch_threads: int | None = Field(
        None, ge=1, le=LARGEST, description="torch threads of a worker; none: as it was started"
    )
    stragglers: Annotated[InstanceOf[Stragglers] | None, _slowness(Stragglers)] = Field(
        None, description="slowness added to gradient workers, such as 'slow:chance=0.1,factor=4'"
    )
    slow_servers: Annotated[InstanceOf[SlowServers] | None, _slowness(SlowServers)] = Field(
        None, description="slowness added to servers' answers, such as 'shards=0,seconds=1,chance=0.05'"
    )

    worker_lease_s: float = Field(15.0, ge=1, description="silence after which a gradient worker counts as lost")
    server_lease_s: float = Field(30.0, ge=1, description="longest silence of a server; most are noticed much earlier")
    absence_limit_s: float = Field(60.0, ge=1, description="longest time without any gradient worker")
    finish_limit_s: float = Field(120.0, ge=1, description="longest time for the last evaluation and saving")

    def __init__(self, **given: Any) -> None:
        known = declared(type(self))
        for name, value in given.items():
            if isinstance(value, bool) and name in known and known[name].kind in (int, float):
                raise known[name].refusal(value)  # pydantic would take it for 0 or 1
            if (
                isinstance(value, str)
                and value == "none"
                and name in known
                and known[name].optional
                and known[name].kind in (int, float)
            ):
                given[name] = None
        if "optimizer" in given:  # of the parameters in its groups, the model knows the names
            given["optimizer"] = translated(given["optimizer"], given.get("model"))
        try:
            super().__init__(**given)
        except ValidationError as error:
            raise refused(error, known, "a job has no field") from None

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

    @model_validator(mode="after")
    def _together(self) -> Job:
        _check_one_subject(self)
        for role in self.resources:
            if role not in ("worker", "server"):
                raise ConfigurationError(f"resources speak of a worker or a server, not of {role!r}", field="resources")
        if not self.stop.ends:
            raise ConfigurationError(
                "stop has no condition; give updates, epochs, seconds, patience or a target", field="stop"
            )
        _check_metrics(self)
        if self.max_workers is not None and self.max_workers < (self.workers or 1):
            raise ConfigurationError(
                f"max_workers must be at least workers: {self.max_workers} < {self.workers}", field="max_workers"
            )
        _check_compression(self)
        if self.micro_batches > self.batch_size:
            raise ConfigurationError(
                f"micro_batches must be at most batch_size: {self.micro_batches} > {self.batch_size}",
                field="micro_batches",
            )
        return self


def require_job(job: object) -> None:
    """Raise `ConfigurationError` if what a program hands in as its job is none."""
    if not isinstance(job, Job):
        text = f"the job must be a ps.Job, not {reprlib.repr(job)}; write ps.Job(...) with its fields"
        raise ConfigurationError(text, field="job")


def require_slow_shards(job: Job) -> None:
    """Raise `ConfigurationError` where a server is slow that the job does not have; a recovered run may have fewer."""
    beyond = [one for one in job.slow_servers.shards if one >= job.shards] if job.slow_servers is not None else []
    if beyond:
        text = f"slow_servers: there is no shard {beyond[0]} among {job.shards}; they are numbered from 0"
        raise ConfigurationError(text, field="slow_servers")


def _check_compression(job: Job) -> None:
    if job.compression.kind == NONE:
        return
    if job.network.fabric is not None:
        text = "compression: a fabric plans for gradients that are sent whole; leave the fabric out, or compression"
        raise ConfigurationError(text, field="compression")
    if isinstance(job.optimizer, Additive):
        text = "compression: updates that are added up must arrive whole; leave it out with the optimizer additive"
        raise ConfigurationError(text, field="compression")


def _check_one_subject(job: Job) -> None:
    parts = ("model", "loss", "step", "data", "collate", "predict")
    supervised = [name for name in parts if getattr(job, name) is not None]
    given = [name for name in ("task", "workload") if getattr(job, name) is not None]
    ways = given + (["model, loss and data"] if supervised else [])
    if len(ways) != 1:
        found = " and ".join(ways) or "nothing"
        raise ConfigurationError(
            f"say what to train in one way, with model, loss and data, or a task, or a workload; given: {found}",
            field="model",
        )
    if supervised:
        _check_supervised(job)


def _check_supervised(job: Job) -> None:
    if job.loss is not None and job.step is not None:
        text = "loss and step are both given, but either one says what is minimised; leave one of them out"
        raise ConfigurationError(text, field="step")
    objective = "loss" if job.step is None else "step"
    for name in ("model", objective, "data"):
        if getattr(job, name) is None:
            missing = "loss (or step)" if name == "loss" else name
            text = f"a model needs its loss and data: {missing} is missing"
            raise ConfigurationError(text, field=name)
    for name, words in _CALLABLES.items():
        value = getattr(job, name)
        if value is not None and not callable(value):
            text = f"{name} must be {words}, not {reprlib.repr(value)}"
            raise ConfigurationError(f"{text}; hand in the object itself, as in ps.Job({name}=...)", field=name)
    if isinstance(job.loss, type):
        name = job.loss.__name__
        raise ConfigurationError(f"loss is the class {name}; hand in one of its objects: {name}()", field="loss")
    if job.step is not None and job.predict is None:
        _check_outcome_of_step(job)
    elif job.step is None and job.predict is not None:
        text = "predict belongs to a step; with a loss, the model's output is what metrics are made of"
        raise ConfigurationError(text, field="predict")


def _check_outcome_of_step(job: Job) -> None:
    wanted = [name for name, one in job.metrics.items() if one.needs_outputs]
    targets = job.stop.targets or {}
    if job.stop.target_accuracy is not None or "accuracy" in (job.watch, *targets, *wanted):
        text = "a step returns a loss only, so there is no accuracy to reach; stop by target_loss, or give predict=..."
        raise ConfigurationError(text, field="stop")
    if wanted:
        text = f'a step returns a loss only, but the metric "{wanted[0]}" is made of outputs and targets'
        raise ConfigurationError(f"{text}; give predict=..., (model, batch) -> (outputs, targets)", field="predict")


def _check_metrics(job: Job) -> None:
    known = {"loss", "accuracy", *job.metrics}
    for field, name in [("watch", job.watch), *(("stop.targets", name) for name in job.stop.targets or {})]:
        if name not in known:
            remedy = f"{nearest(name, known)}; name others in metrics"
            raise ConfigurationError(f'{field}: nothing measures "{name}"; {remedy}', field=field)
    if job.task is None:
        for name, metric in job.metrics.items():
            if metric.measure is None:
                text = f'metrics: the measure of "{name}" is missing, and only a task of your own brings its metrics'
                raise ConfigurationError(f"{text}; give a function or a bundled name", field="metrics")
    elif bound := [name for name, metric in job.metrics.items() if metric.measure is not None]:
        text = f'metrics: the task measures itself, so "{bound[0]}" must be among the metrics of its evaluate()'
        raise ConfigurationError(f"{text}; write ps.Metric(better=...) for it", field="metrics")
    if job.stop.patience is not None and job.evaluate_every is None:
        text = "patience counts evaluations, of which there is only the last; give evaluate_every as well"
        raise ConfigurationError(text, field="evaluate_every")
