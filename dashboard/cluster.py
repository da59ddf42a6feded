"""The scheduler beside the page: asked in the background, so that no page ever waits for one that is gone."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from psplatform.errors import ClusterError, PsplatformError

if TYPE_CHECKING:
    from psplatform.client.cluster_view import ClusterView
    from psplatform.client.run import Run

T = TypeVar("T")

_ASK_EVERY_S: Final = 2.0
_RETRY_S: Final = 3.0

_ACT_S: Final = 12.0
"""For what is done with a run: one that was killed has to leave the cluster first."""


@dataclass(frozen=True, slots=True)
class ClusterNews:
    """What was heard of the scheduler last.

    Attributes
    ----------
    view
        Its processes and runs, ``None`` while it does not answer.
    trouble
        Why it does not answer, in one sentence, else empty.
    heard_at
        Unix time of its last answer, ``None`` before the first.
    """

    view: ClusterView | None
    trouble: str
    heard_at: float | None


class Cluster:
    """A scheduler that is asked every few seconds, and again and again while it is away."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._news = ClusterNews(None, "", None)
        self._client: Any = None
        self._acting = ThreadPoolExecutor(max_workers=4, thread_name_prefix="acting")
        self._closed = threading.Event()
        self._answered = threading.Event()
        threading.Thread(target=self._keep_asking, name="cluster", daemon=True).start()

    @property
    def news(self) -> ClusterNews:
        """What was heard last."""
        return self._news

    def await_answer(self, seconds: float) -> None:
        """Wait until the scheduler was asked once, for so long at most."""
        self._answered.wait(seconds)

    @property
    def live(self) -> frozenset[str]:
        """Ids of the runs that go on."""
        view = self._news.view
        return frozenset(view.runs) if view is not None else frozenset()

    def with_run(self, run: str, act: Callable[[Run], T]) -> T:
        """Return what `act` does with a run that goes on.

        Raises
        ------
        PsplatformError
            If the scheduler is away or silent, or does not know the run.
        """
        from psplatform.client.run import attach  # noqa: PLC0415  brings Dask, which pages of stores need not

        client = self._client
        if client is None:
            raise ClusterError(self._news.trouble or f"the scheduler {self.address} was not reached yet", peer=None)
        try:
            return self._acting.submit(lambda: act(attach(run, client))).result(timeout=_ACT_S)
        except FutureTimeout:
            text = f"the scheduler {self.address} or the run {run} did not answer within {_ACT_S:g} s; try again"
            raise ClusterError(text, peer=None) from None

    def close(self) -> None:
        """Let go of the scheduler."""
        self._closed.set()

    def _keep_asking(self) -> None:
        while not self._closed.is_set():
            try:
                self._ask()
                pause = _ASK_EVERY_S
            except Exception as error:  # noqa: BLE001  what a foreign scheduler answers ends no thread: pages say it
                self._news = ClusterNews(None, _sentence(self.address, error), self._news.heard_at)
                self._forget_client()
                pause = _RETRY_S
            finally:
                self._answered.set()
            self._closed.wait(pause)
        self._forget_client()

    def _ask(self) -> None:
        from psplatform.client.cluster_view import look_at_cluster  # noqa: PLC0415  brings Dask
        from psplatform.client.connecting import connect  # noqa: PLC0415  as above

        if self._client is None:
            self._client = connect(self.address)
        view = look_at_cluster(self._client)
        self._news = ClusterNews(view, "", time.time())

    def _forget_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            # Closing waits for a scheduler that is gone; the pages need not.
            threading.Thread(target=_close, args=(client,), daemon=True).start()


def _sentence(address: str, error: Exception) -> str:
    if isinstance(error, PsplatformError):
        return str(error)
    what = f"{type(error).__name__}: {error}".replace("\n", " ")
    text = f"the scheduler {address} runs another version of psplatform or Dask, or lacks psplatform ({what})"
    return f"{text}; install the same there"


def _close(client: Any) -> None:
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        client.close(timeout=2)
