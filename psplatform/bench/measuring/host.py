"""What measurements ask of their host: what processes compute and hold, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return what all threads of a process have computed so far, in user and system mode; 0 if it has ended."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def tree_cpu_seconds(pid: int) -> float:
    """Return the same of a process and of all that it has started, and they, and that go on."""
    started = dict[int, list[int]]()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _stat(int(folder.name))):
            started.setdefault(int(fields[1]), []).append(int(folder.name))
    found, waiting = 0.0, [pid]
    while waiting:
        one = waiting.pop()
        found += cpu_seconds(one)
        waiting += started.get(one, [])
    return found


def held_bytes(pid: int) -> int:
    """Return how much memory a process holds: its own, and its part of what it shares; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
