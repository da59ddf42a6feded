"""What the kernel says of a process by its number."""

from __future__ import annotations

from pathlib import Path


def state_of(pid: int) -> str:
    """Return the letter of a process's state, as in ``/proc/PID/stat``."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def has_ended(pid: int) -> bool:
    """Whether there is no such process, or one that nobody has waited for: not every first process of a system does."""
    try:
        return state_of(pid) == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
