"""What must hold before anything is started; each check ends in one sentence with the remedy."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle
import fsspec
import numpy as np
from distributed import Client

from psplatform.errors import ClusterError, ConfigurationError, StoreError
from psplatform.jobs.optimizers import Optimizer
from psplatform.runtime.placement import Process
from psplatform.runtime.program import choose_device, user_code
from psplatform.tasks.cancellation import Cancellation
from psplatform.tasks.layouts import layout_of
from psplatform.tasks.sampling import gradient_seed
from psplatform.tasks.seam import BatchRef, open_workspace
from psplatform.tensors.vectors import allocate, fill

_VERSION: Final = "psplatform:__version__"


@dataclass(frozen=True, slots=True)
class Trial:
    """What one gradient in a process of the cluster told about a task."""

    samples: int
    parameters: int
    evaluates: bool


async def processes_of(client: Client) -> list[Process]:
    """Return the running Dask workers of the client's cluster, in the order of their addresses."""
    scheduler: Any = client.scheduler
    workers = (await scheduler.identity(n_workers=-1))["workers"]
    running = {address: one for address, one in workers.items() if one.get("status") == "running"}
    return [Process(address, one["host"], one["resources"] or {}) for address, one in sorted(running.items())]


async def foreign_workers(client: Client, addresses: Sequence[str]) -> dict[str, str]:
    """Return, for each Dask worker that cannot run this psplatform, what is wrong with it."""
    from psplatform import __version__ as ours  # noqa: PLC0415  the package is complete only when this is called

    found = await client.run(pkgutil.resolve_name, _VERSION, workers=list(addresses), on_error="return")
    return {address: _complaint(version, ours) for address, version in found.items() if version != ours}


def _complaint(version: object, ours: str) -> str:
    if isinstance(version, BaseException):
        return f"has no psplatform ({version})"
    return f"has psplatform {version}, not {ours}"


async def require_same_version(client: Client, processes: Sequence[Process]) -> None:
    """Refuse a cluster whose environments differ from this one's.

    Raises
    ------
    ConfigurationError
        Naming the first Dask worker that lacks psplatform or has another version.
    """
    foreign = await foreign_workers(client, [one.address for one in processes])
    if foreign:
        address, complaint = min(foreign.items())
        more = f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""
        raise ConfigurationError(
            f"the Dask worker {address} {complaint}{more}; install the same psplatform in every worker's environment",
            field="scheduler",
        )


def try_task(task: bytes, optimizer: Optimizer, settings: Mapping[str, Any]) -> Trial:
    """Open a task where this runs and compute one gradient with it.

    Parameters
    ----------
    settings
        ``seed``, ``device``, ``batch_size``, ``micro_batches``, ``shards`` and ``block_elements`` of the job.

    Raises
    ------
    ConfigurationError
        If the task cannot be trained: no trainable parameters, a batch larger than the data, a loss that is no scalar.
    UserCodeError
        If the user's code raises.
    """
    device = choose_device(settings["device"])
    with user_code("opening the task"):
        workspace = open_workspace(cloudpickle.loads(task), settings["seed"], device)
    layout = layout_of(workspace, optimizer, settings["shards"], settings["block_elements"])
    _require_trainable(layout.parameters, workspace.samples, settings["batch_size"])
    values = allocate(layout, device=device)
    with user_code("computing a first gradient"):
        fill(layout, values, workspace.initial())
        workspace.bind(layout, values, allocate(layout, device=device))
        batch = BatchRef(np.arange(settings["batch_size"], dtype=np.int64), gradient_seed(settings["seed"], 0, 0))
        workspace.compute(batch, Cancellation(), settings["micro_batches"])
    return Trial(workspace.samples, layout.parameters, workspace.evaluates)


def _require_trainable(parameters: int, samples: int, batch_size: int) -> None:
    if parameters == 0:
        raise ConfigurationError(
            "the model has no trainable parameters; set requires_grad on those to train", field="model"
        )
    if batch_size > samples:
        raise ConfigurationError(
            f"batch_size must be at most the number of samples: {batch_size} > {samples}", field="batch_size"
        )


def see_store(store: str) -> str:
    """Return ``""`` if this process sees the run's store and can write to it, else what is wrong."""
    files, root = fsspec.url_to_fs(store)
    probe = f"{root}/.probe-{id(files):x}"
    try:
        if not files.exists(f"{root}/zarr.json"):
            return "does not see it"
        files.pipe_file(probe, b"")
        files.rm_file(probe)
    except OSError as error:
        return f"cannot write to it ({error})"
    return ""


async def require_visible_store(client: Client, store: str, addresses: Sequence[str]) -> None:
    """Refuse a store that a process of the run cannot use.

    Raises
    ------
    StoreError
        Naming the first such Dask worker.
    """
    found = await client.run(see_store, store, workers=sorted(set(addresses)), on_error="return")
    for address, complaint in sorted(found.items()):
        if complaint:
            raise StoreError(
                f"the Dask worker {address} {complaint}: {store}; choose a store on a file system that every host "
                "shares, or a URL",
                store=store,
            )


def require_workers(processes: Sequence[Process]) -> None:
    """Refuse a cluster without any Dask worker."""
    if not processes:
        raise ClusterError("the scheduler has no Dask workers; start some with `dask worker ADDRESS`")


