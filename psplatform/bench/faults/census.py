"""What a run holds: memory and file descriptors of its processes, shared memory, and entries on its scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

_PROC: Final = Path("/proc")
_MIB: Final = 1024  # the kernel counts in KiB
_FLAT_SHARE: Final = 0.15
_FLAT_COUNT: Final = 5.0
"""What grows by no more than this share, or by no more than this, counts as flat: processes are started anew, and what
a role holds depends a little on when it was looked at."""


def entries(dask_scheduler: Any) -> dict[str, float]:
    """Return how many things a scheduler keeps, by kind; runs on the scheduler."""
    extensions = dask_scheduler.extensions
    semaphores = getattr(extensions.get("semaphores"), "leases", {})
    datasets = getattr(extensions.get("publish"), "datasets", {})
    return {
        "tasks": float(len(dask_scheduler.tasks)),
        "clients": float(len(dask_scheduler.clients)),
        "metadata": float(len(dask_scheduler.task_metadata)),
        "semaphores": float(len(semaphores)),
        "datasets": float(len(datasets)),
    }


def held_by(pid: int) -> dict[str, float]:
    """Return the memory of a process, with its share of what it has in common with others, and its open files.

    Nothing where the process is gone or hidden.
    """
    place = _PROC / str(pid)
    try:
        lines = (place / "smaps_rollup").read_text().splitlines()
        shared = sum(float(one.split()[1]) for one in lines if one.startswith("Pss:")) / _MIB
        return {"pss_mib": shared, "files": float(len(list((place / "fd").iterdir())))}
    except OSError:
        return {}


def segments_of(run: str, folders: Sequence[Path]) -> dict[str, float]:
    """Return how many segments of shared memory carry the run's id, and how large they are."""
    sizes = []
    for path in (path for folder in folders for path in folder.glob(f"*{run}*")):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue
    return {"segments": float(len(sizes)), "segments_mib": sum(sizes) / 2**20}


def census(
    roles: Mapping[str, int],
    scheduler: Mapping[str, float],
    segments: Mapping[str, float],
    everybody: Collection[int] = (),
) -> dict[str, float]:
    """Return one number for each thing held: the memory of the largest process of each role, and the files of all.

    Roles share processes, more of them after some failovers than at the start, and each has its connections.  So files
    are counted over all processes together, which does not depend on which role is where.

    Parameters
    ----------
    roles
        The process of each role, by kind: ``server``, ``coordinator`` and so on, perhaps with a number behind it.
    everybody
        The processes whose open files are counted.
    """
    found: dict[str, float] = {f"scheduler {name}": value for name, value in scheduler.items()} | dict(segments)
    held = {pid: held_by(pid) for pid in {*roles.values(), *everybody}}  # once: a process has several roles
    for role, pid in roles.items():
        if held[pid]:
            name = f"{role.split()[0]} pss_mib"
            found[name] = max(held[pid]["pss_mib"], found.get(name, 0.0))
    files = [held[pid]["files"] for pid in everybody if held[pid]]
    return found | ({"processes files": sum(files)} if files else {})


def growth(series: Sequence[Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Return for each thing held its median in the first and in the last third of the looks, and whether it is flat."""
    found = {}
    for name in sorted({name for one in series for name in one}):
        values = [one[name] for one in series if name in one]
        third = max(1, len(values) // 3)
        first, last = median(values[:third]), median(values[-third:])
        flat = last - first <= max(_FLAT_SHARE * first, _FLAT_COUNT)
        found[name] = {"first": first, "last": last, "max": max(values), "flat": flat}
    return found
