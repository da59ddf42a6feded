"""What the command line said: all that the pages may know of this machine's files comes from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from psplatform.errors import InvariantViolation

PORT: Final = 8501
LOCALHOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Settings:
    """One dashboard.

    Attributes
    ----------
    folder
        Folder of stores that is shown and that new runs are put into.
    store
        The only run that is shown; ``None`` for all of the folder.
    scheduler
        Address of the scheduler that is asked and that runs are started on; ``None`` for none.
    passing
        Whether that scheduler is one run's own and ends with it: then its silence is no trouble, and no other run is
        started on it.
    jobs
        Name and path of each job file that may be started from the page.
    allow_chaos
        Whether the page offers to kill and pause processes of a run.
    address, port
        Where the page is served.
    records
        Folder of this user's own in which programs that the page starts are recorded.
    """

    folder: str = "runs"
    store: str | None = None
    scheduler: str | None = None
    passing: bool = False
    jobs: tuple[tuple[str, str], ...] = ()
    allow_chaos: bool = False
    address: str = LOCALHOST
    port: int = PORT
    records: str = ""

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine reach the page."""
        return self.address in (LOCALHOST, "localhost", "::1")

    @property
    def starts_on(self) -> str | None:
        """The scheduler that new runs are started on; ``None`` for a cluster of their own on this machine."""
        return None if self.passing else self.scheduler

    @property
    def record_folder(self) -> Path:
        """The folder of records."""
        return Path(self.records)


class _Installed:
    settings: Settings | None = None


def install(settings: Settings) -> None:
    """Make these the settings of this process's pages."""
    _Installed.settings = settings


def current() -> Settings:
    """Return the settings of this process's pages."""
    if _Installed.settings is None:
        raise InvariantViolation("the pages are shown by `psplatform dashboard`, which says what to show")
    return _Installed.settings
