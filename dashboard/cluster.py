"""The scheduler beside the page: asked in the background, so that no page ever waits for one that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from psplatform.client.runs.listing import Listed, goes_on
from psplatform.errors import ClusterError, PsplatformError

if TYPE_CHECKING:
    from psplatform.client.chaos import Target
    from psplatform.client.clusters.cluster_view import ClusterView
    from psplatform.client.run import Run

T = TypeVar("T")

_ASK_EVERY_S: Final = 2.0
_RETRY_S: Final = 3.0

_DEED_S: Final = 40.0
"""For what is done in the background: a kill is ordered for 10 s, and the process may take 15 s more to leave."""

FAULT: Final = "fault"
"""The kind of what is done to hurt a run."""

_WATCH_EVERY_S: Final = 2.0
_MOST_AT_ONCE: Final = 8
"""Threads that ask and act: those that wait for a stopped coordinator must not hold up the others."""


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


@dataclass(frozen=True, slots=True)
class Watched:
    """What a run's coordinator said last of its roles.

    Attributes
    ----------
    targets
        The roles and the processes that host them; ``None`` before the first answer.
    trouble
        Why it did not answer when it was asked last, in one sentence, else empty.
    """

    targets: tuple[Target, ...] | None = None
    trouble: str = ""

    @property
    def roles(self) -> dict[str, str]:
        """The address of the Dask worker that hosts each role."""
        return {one.role: one.address for one in self.targets or ()}


class Deed:
    """What is done with a run in the background.

    Attributes
    ----------
    what
        In a few words, such as ``killing the process of server-0``.
    """

    def __init__(self, what: str, outcome: Future[str]) -> None:
        self.what = what
        self._outcome = outcome
        self._give_up_at = time.monotonic() + _DEED_S

    @property
    def running(self) -> bool:
        """Whether it is under way, and not for longer than it can take."""
        return not self._outcome.done() and time.monotonic() < self._give_up_at

    def outcome(self) -> str:
        """Return in a sentence what came of it.

        Raises
        ------
        PsplatformError
            If it failed, or was not done in time.
        """
        if not self._outcome.done():
            raise ClusterError(f"{self.what}: not done within {_DEED_S:g} s; look at the run before trying again")
        try:
            return self._outcome.result()
        except PsplatformError:
            raise
        except (Exception, asyncio.CancelledError) as error:  # the latter where the connection was given up meanwhile
            raise ClusterError(f"{self.what} failed ({type(error).__name__}: {error})") from error


class Cluster:
    """A scheduler that is asked every few seconds, and again and again while it is away.

    Parameters
    ----------
    needed
        Whether it is still to be asked: of one that ends with a program, until that has ended.
    """

    def __init__(self, address: str, needed: Callable[[], bool] = lambda: True) -> None:
        self.address = address
        self._needed = needed
        self._news = ClusterNews(None, "", None)
        self._client: Any = None
        self._acting = ThreadPoolExecutor(max_workers=_MOST_AT_ONCE, thread_name_prefix="acting")
        self._lock = threading.Lock()
        self._watched: dict[str, Watched] = {}
        self._watching: dict[str, float] = {}
        self._deeds: dict[tuple[str, str], Deed] = {}
        self._closed = threading.Event()
        self._answered = threading.Event()
        self._began = time.monotonic()
        threading.Thread(target=self._keep_asking, name=f"cluster {address}", daemon=True).start()

    @property
    def news(self) -> ClusterNews:
        """What was heard last."""
        return self._news

    def await_answer(self, seconds: float) -> None:
        """Wait until the scheduler was asked once, until so long after this object was made at most."""
        self._answered.wait(max(0.0, self._began + seconds - time.monotonic()))

    @property
    def live(self) -> Mapping[str, str]:
        """The store of each run that goes on, by the run's id."""
        view = self._news.view
        return view.stores if view is not None else {}

    def knows(self, listed: Listed) -> bool:
        """Whether this very run goes on there: not one in another store, of which this one is a copy."""
        return goes_on(listed.run, listed.store, self.live)

    def watched(self, run: str) -> Watched:
        """Return what was last known of a run's roles, at once; it is asked in the background every two seconds."""
        with self._lock:
            known = self._watched.get(run, Watched())
            if time.monotonic() < self._watching.get(run, 0.0):
                return known
            self._watching[run] = float("inf")  # until this question has its answer
        try:
            self._submit(run, _targets).add_done_callback(lambda answer: self._heard(run, answer))
        except PsplatformError as error:
            self._heard_of(run, replace(known, trouble=str(error)))
            return self._watched[run]
        return known

    def begin(self, run: str, what: str, act: Callable[[Run], str], *, kind: str = FAULT) -> Deed:
        """Let `act` be done with a run in the background; where one of its kind is under way, that is returned."""
        with self._lock:
            before = self._deeds.get((run, kind))
            if before is not None and before.running:
                return before
            outcome: Future[str] = Future()
            try:
                outcome = self._submit(run, act)
            except PsplatformError as error:
                outcome.set_exception(error)
            self._deeds[run, kind] = found = Deed(what, outcome)
            return found

    def deed(self, run: str) -> Deed | None:
        """Return the fault that is under way with a run, or was done to it last."""
        return self._deeds.get((run, FAULT))

    def _submit(self, run: str, act: Callable[[Run], T]) -> Future[T]:
        from psplatform.client.runs.attaching import attach  # noqa: PLC0415  brings Dask, which pages of stores need not

        client = self._client
        if client is None:
            raise ClusterError(self._news.trouble or f"the scheduler {self.address} was not reached yet", peer=None)
        try:
            return self._acting.submit(lambda: act(attach(run, client)))
        except RuntimeError as error:  # it was closed meanwhile
            raise ClusterError(f"the scheduler {self.address} is asked no more: its run is over") from error

    def _heard(self, run: str, answer: Future[tuple[Target, ...]]) -> None:
        if answer.cancelled():
            return  # the scheduler was let go of before the question was asked
        error = answer.exception()
        if error is None:
            self._heard_of(run, Watched(answer.result()))
        else:
            text = str(error) if isinstance(error, PsplatformError) else f"{type(error).__name__}: {error}"
            self._heard_of(run, replace(self._watched.get(run, Watched()), trouble=text))

    def _heard_of(self, run: str, news: Watched) -> None:
        with self._lock:
            self._watched[run] = news
            self._watching[run] = time.monotonic() + _WATCH_EVERY_S

    def close(self) -> None:
        """Let go of the scheduler."""
        self._closed.set()
        self._acting.shutdown(wait=False, cancel_futures=True)

    @property
    def closed(self) -> bool:
        """Whether it is asked no more."""
        return self._closed.is_set()

    def _keep_asking(self) -> None:
        while not self._closed.is_set():
            if not self._needed():
                self.close()
                break
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
        from psplatform.client.clusters.cluster_view import look_at_cluster  # noqa: PLC0415  brings Dask
        from psplatform.client.clusters.connecting import connect  # noqa: PLC0415  as above

        if self._client is None:
            self._client = connect(self.address)
        view = look_at_cluster(self._client)
        self._news = ClusterNews(view, "", time.time())

    def _forget_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            # Closing waits for a scheduler that is gone; the pages need not.
            threading.Thread(target=_close, args=(client,), daemon=True).start()


def _targets(run: Run) -> tuple[Target, ...]:
    from psplatform.client import chaos  # noqa: PLC0415  brings Dask

    return tuple(chaos.targets(run))


def _sentence(address: str, error: Exception) -> str:
    if isinstance(error, PsplatformError):
        return str(error)
    what = f"{type(error).__name__}: {error}".replace("\n", " ")
    text = f"the scheduler {address} runs another version of psplatform or Dask, or lacks psplatform ({what})"
    return f"{text}; install the same there"


def _close(client: Any) -> None:
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        client.close(timeout=2)
