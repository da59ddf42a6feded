"""A visitor without a browser: opens a page of a served dashboard and lets it refresh, over Streamlit's own protocol.

It sends and folds the messages that the application in a browser would, and draws nothing.  What it does was learned
from Streamlit 1.67's front end: the first request names the page, later ones its hash; a fragment that refreshes
itself is requested again at a fixed rate; large elements are kept, and while requests name their hashes, the server
may send a hash instead of the element.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from psplatform.dashboard.charts import NAME as CHART
from psplatform.errors import ClusterError

_CONNECT_S: Final = 30.0
_MOST_BYTES: Final = 1 << 28
"""Of one message: the largest figure of a page has to fit."""

_ENDS: Final = frozenset({"FINISHED_SUCCESSFULLY", "FINISHED_FRAGMENT_RUN_SUCCESSFULLY"})


@dataclass(frozen=True, slots=True)
class Kept:
    """An element, which fragment it is of ("" for none), and the script run that sent it last."""

    element: Any
    fragment: str
    run: int


@dataclass(slots=True)
class Page:
    """What a visitor was sent of a page, folded message by message.

    Attributes
    ----------
    shown
        Elements by their place.
    runs, refreshes
        Script runs that ended well: of the whole page, and of fragments of it.
    trouble
        What went wrong on the server; empty if nothing did.
    script
        Hash that names the page in requests.
    intervals
        Seconds between refreshes of each fragment that asks for them.
    received_bytes
        All that came.
    """

    shown: dict[tuple[int, ...], Kept] = field(default_factory=dict)
    runs: int = 0
    refreshes: int = 0
    trouble: str = ""
    script: str = ""
    intervals: dict[str, float] = field(default_factory=dict)
    received_bytes: int = 0
    _large: dict[str, Kept] = field(default_factory=dict)
    _most_age: int = 2
    _fragments: tuple[str, ...] = ()

    @property
    def hashes(self) -> list[str]:
        """Of the large elements that are kept."""
        return list(self._large)

    @property
    def figures(self) -> int:
        """How many plots are shown."""
        return sum(one.component_name == CHART for one in self._of_type("bidi_component"))

    @property
    def metrics(self) -> dict[str, str]:
        """The labelled values that are shown."""
        return {one.label: one.body for one in self._of_type("metric")}

    @property
    def alerts(self) -> list[str]:
        """The texts in boxes: news, warnings, errors."""
        return [one.body for one in self._of_type("alert")]

    def _of_type(self, name: str) -> list[Any]:
        elements = [one.element for one in self.shown.values()]
        return [getattr(one, name) for one in elements if one.WhichOneof("type") == name]

    def take(self, message: ForwardMsg, size_bytes: int) -> None:
        """Fold the next message."""
        self.received_bytes += size_bytes
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._begin(message)
        elif kind == "auto_rerun":
            self.intervals[message.auto_rerun.fragment_id] = message.auto_rerun.interval
        elif kind == "stop_auto_rerun":
            for one in message.stop_auto_rerun.fragment_ids:
                self.intervals.pop(one, None)
        elif kind == "navigation":
            self.script = message.navigation.page_script_hash
        elif kind == "script_finished":
            self._end(ForwardMsg.ScriptFinishedStatus.Name(message.script_finished))
        elif kind == "page_not_found":
            self.trouble = f"there is no page {message.page_not_found.page_name!r}"
        elif kind == "session_event" and message.session_event.HasField("script_compilation_exception"):
            self.trouble = message.session_event.script_compilation_exception.message
        elif kind in ("delta", "ref_hash"):
            self._show(message)

    def _begin(self, message: ForwardMsg) -> None:
        self._fragments = tuple(message.metadata.run.fragment_ids)
        if not self._fragments:
            self.intervals.clear()
            self.script = message.new_session.page_script_hash
            self._most_age = message.new_session.config.max_cached_message_age

    def _end(self, status: str) -> None:
        if status == "FINISHED_WITH_COMPILE_ERROR":
            self.trouble = self.trouble or "the script of the pages cannot be compiled"
        if status not in _ENDS:
            return  # another run of the script follows at once
        now = self._now
        # What this run did not send again is gone from the page, as far as the run was about it.
        self.shown = {place: one for place, one in self.shown.items() if one.run == now or not self._is_of_run(one)}
        self._large = {
            name: one
            for name, one in self._large.items()
            if not self._is_of_run(one) or now + 1 - one.run <= self._most_age
        }
        if self._fragments:
            self.refreshes += 1
        else:
            self.runs += 1

    @property
    def _now(self) -> int:
        return self.runs + self.refreshes

    def _is_of_run(self, one: Kept) -> bool:
        return not self._fragments or one.fragment in self._fragments

    def _show(self, message: ForwardMsg) -> None:
        delta = message.delta
        if message.WhichOneof("type") == "ref_hash":
            known = self._large.get(message.ref_hash)
            if known is None:
                self.trouble = f"the server counts on the element {message.ref_hash}, which was not kept"
                return
            kept = self._large[message.ref_hash] = Kept(known.element, known.fragment, self._now)
        elif delta.WhichOneof("type") == "new_element":
            kept = Kept(delta.new_element, delta.fragment_id, self._now)
            if message.metadata.cacheable:
                self._large[message.hash] = kept
        else:
            return
        self.shown[tuple(message.metadata.delta_path)] = kept
        if kept.element.WhichOneof("type") == "exception":
            self.trouble = f"{kept.element.exception.type}: {kept.element.exception.message}"


class Session:
    """A visitor of one page, in a thread of its own; a context that ends the visit.

    Parameters
    ----------
    port
        Where the dashboard is served on this machine.
    page, query
        As in the address that a browser would show: ``overview``, ``run=digits-1a2b3c``.
    """

    def __init__(self, port: int, page: str, query: str = "") -> None:
        self._address = f"ws://127.0.0.1:{port}/_stcore/stream"
        self._name, self._query = page, query
        self._page = Page()
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._error: Exception | None = None
        self._visit: asyncio.Task[None] | None = None
        self._closing = self._over = False
        self._refreshes = True
        self._began = time.perf_counter()
        self._opened_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"visitor of {page}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the visit."""
        with self._changed:
            self._closing = True  # for a thread that has not begun the visit yet
            if self._visit is not None and not self._over:
                self._loop.call_soon_threadsafe(self._visit.cancel)
        self._thread.join()

    def wait_opened(self, limit_s: float) -> float:
        """Return the seconds from the first request until the page was there.

        Raises
        ------
        ClusterError
            If it was not there in time, or something went wrong.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._opened_s is not None or self._failure(), limit_s)
            self._require_well()
            if self._opened_s is None:
                raise ClusterError(
                    f"the page {self._name} did not come within {limit_s:g} s; look whether it is served"
                )
            return self._opened_s

    def wait_refreshes(self, count: int, limit_s: float) -> None:
        """Wait until parts of the page were refreshed so many times.

        Raises
        ------
        ClusterError
            If they were not in time, or something went wrong.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._page.refreshes >= count or self._failure(), limit_s)
            self._require_well()
            if self._page.refreshes < count:
                raise ClusterError(f"the page {self._name} was not refreshed within {limit_s:g} s; is its run live?")

    def refresh(self, *, on: bool) -> None:
        """Ask for refreshes from now on, or for none."""
        self._refreshes = on

    def look(self) -> Page:
        """Return the page as far as it came.

        Raises
        ------
        ClusterError
            If something went wrong so far.
        """
        with self._changed:
            self._require_well()
            return replace(self._page, shown=dict(self._page.shown))

    def _failure(self) -> str:
        if self._page.trouble:
            return self._page.trouble
        if self._error is not None:
            return f"{type(self._error).__name__}: {self._error}"
        return "the server ended the connection" if self._over else ""

    def _require_well(self) -> None:
        if failure := self._failure():
            raise ClusterError(f"the page {self._name} cannot be shown ({failure}); look at it in a browser")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            with self._changed:
                if self._closing:
                    return
                self._visit = self._loop.create_task(self._attend())
            self._loop.run_until_complete(self._visit)
        except asyncio.CancelledError:
            pass
        except Exception as error:  # noqa: BLE001  shown on the page
            self._error = error
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()
            self._loop.close()

    async def _attend(self) -> None:
        request = HTTPRequest(self._address, connect_timeout=_CONNECT_S)
        connection = await websocket_connect(request, subprotocols=["streamlit"], max_message_size=_MOST_BYTES)
        timers: dict[str, tuple[float, asyncio.Task[None]]] = {}
        try:
            await self._request(connection)
            while True:
                data = await connection.read_message()
                if not isinstance(data, bytes):
                    return
                with self._changed:
                    self._page.take(ForwardMsg.FromString(data), len(data))
                    if self._page.runs and self._opened_s is None:
                        self._opened_s = time.perf_counter() - self._began
                    self._changed.notify_all()
                self._set_timers(connection, timers)
        finally:
            for _, timer in timers.values():
                timer.cancel()
            connection.close()

    def _set_timers(
        self, connection: WebSocketClientConnection, timers: dict[str, tuple[float, asyncio.Task[None]]]
    ) -> None:
        wanted = self._page.intervals
        for fragment in [one for one, (interval, _) in timers.items() if wanted.get(one) != interval]:
            timers.pop(fragment)[1].cancel()
        for fragment, interval in wanted.items():
            if fragment not in timers:
                timers[fragment] = interval, asyncio.create_task(self._repeat(connection, fragment, interval))

    async def _repeat(self, connection: WebSocketClientConnection, fragment: str, interval: float) -> None:
        due = self._loop.time()
        while True:
            due += interval
            await asyncio.sleep(due - self._loop.time())
            if self._refreshes:
                await self._request(connection, fragment)

    async def _request(self, connection: WebSocketClientConnection, fragment: str = "") -> None:
        message = BackMsg()
        asked = message.rerun_script
        asked.query_string = self._query
        if self._page.script:
            asked.page_script_hash = self._page.script
        else:
            asked.page_name = self._name
        asked.cached_message_hashes.extend(self._page.hashes)
        asked.fragment_id, asked.is_auto_rerun = fragment, bool(fragment)
        await connection.write_message(message.SerializeToString(), binary=True)
