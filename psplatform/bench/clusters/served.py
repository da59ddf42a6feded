"""A dashboard's server process, as ``psplatform dashboard`` starts it, looked at from beside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from psplatform.bench.measuring.host import cpu_seconds
from psplatform.client.clusters.ports import free_port
from psplatform.errors import ClusterError

_START_S: Final = 120.0
_END_S: Final = 10.0
_POLL_S: Final = 0.1
_MIB: Final = 1 << 20


class Served:
    """A server of the dashboard of a folder, which answers; a context that ends it.

    Parameters
    ----------
    folder
        Of stores.
    records
        Where it may keep what it notes for its user.
    """

    def __init__(self, folder: Path, records: Path) -> None:
        self.port = free_port()
        self._log = records / f"server-{self.port}.log"
        command = [sys.executable, "-m", "psplatform", "dashboard", str(folder), "--port", str(self.port)]
        with self._log.open("wb") as log:
            # In a session of its own, so that Ctrl-C reaches this program alone, which ends it.
            self._process = subprocess.Popen(  # noqa: S603  a command of ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "XDG_STATE_HOME": str(records)},
                start_new_session=True,
            )
        try:
            self._wait_for_answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def cpu_seconds(self) -> float:
        """Return what its threads have computed so far, in user and system mode."""
        self._require_going()
        return cpu_seconds(self.pid)

    def resident_mib(self) -> float:
        """Return its memory that is in use now."""
        return int(self._read("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MIB

    def pause(self) -> None:
        """Stop it where it is, with SIGSTOP."""
        self._require_going()
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on after a pause."""
        self._require_going()
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)  # one that is stopped would not hear
            self._process.terminate()
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _read(self, name: str) -> str:
        self._require_going()
        return Path(f"/proc/{self.pid}/{name}").read_text(encoding="utf-8")

    def _require_going(self) -> None:
        if self._process.poll() is not None:
            said = self._log.read_text(encoding="utf-8", errors="replace").strip()
            raise ClusterError(f"the dashboard ended with code {self._process.returncode}; it said: {said}")

    def _wait_for_answer(self) -> None:
        give_up_at = time.monotonic() + _START_S
        while not _answers(f"http://127.0.0.1:{self.port}/_stcore/health"):
            self._require_going()
            if time.monotonic() > give_up_at:
                raise ClusterError(f"the dashboard did not answer within {_START_S:g} s; start it by hand and look")
            time.sleep(_POLL_S)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2.0) as answer:  # noqa: S310  an address of ours
            return bool(answer.status == 200)
    except OSError:
        return False
