"""What all pages about runs share: which runs, how often refreshed, and what is said when something is wrong."""

from __future__ import annotations

import functools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from psplatform.client.runs.listing import Listed, State
from psplatform.dashboard import programs
from psplatform.dashboard.charts import chart
from psplatform.dashboard.cluster import Cluster
from psplatform.dashboard.figures.curves import Axis
from psplatform.dashboard.library import Library, understood
from psplatform.dashboard.read_models.reading import Reading
from psplatform.dashboard.settings import Settings, current
from psplatform.dashboard.words import plain
from psplatform.errors import PsplatformError
from psplatform.replication.stores.places import place_of

_FIRST_ANSWER_S: Final = 3.0
_LOOK_EVERY_S: Final = 2.0
_LOOK_AGAIN_S: Final = 4.0
"""Whether a run goes on again, from another browser or a terminal."""

_BUDGET_S: Final = 0.6
"""Of reading a log between two signs of progress."""

MOST_OVERLAID: Final = 7
"""Runs in one picture: so many colours can be told apart."""

_RATES: Final = {"1 s": 1.0, "5 s": 5.0, "paused": None}


@functools.cache
def _library(settings: Settings) -> Library:
    return Library(settings)


_asked: Final[dict[str, Cluster]] = {}
_asking: Final = threading.Lock()


def cluster_at(address: str, needed: Callable[[], bool] = lambda: True) -> Cluster:
    """Return the scheduler at an address, asked from now on, until it is needed no more."""
    with _asking:
        for one in [one for one, found in _asked.items() if found.closed]:
            del _asked[one]
        if address not in _asked:
            _asked[address] = Cluster(address, needed)
        return _asked[address]


def library() -> Library:
    """Return the runs of this dashboard."""
    return _library(current())


def cluster() -> Cluster | None:
    """Return the scheduler of this dashboard, if it was given one."""
    settings = current()
    if settings.scheduler is None:
        return None
    found = cluster_at(settings.scheduler)
    found.await_answer(_FIRST_ANSWER_S)
    return found


def listed_runs() -> list[Listed]:
    """Return the runs that there are, the newest first."""
    found = cluster()
    live = found.live if found is not None else {}
    return library().runs(live, (*programs.stores(), *(one for one in live.values() if _is_here(one))))


def _is_here(store: str) -> bool:
    return "://" not in store and Path(place_of(store)).is_dir()


@dataclass(frozen=True, slots=True)
class Shown:
    """A run that a page shows.

    Attributes
    ----------
    name
        Its id, with the store's name where two have the same id.
    """

    name: str
    listed: Listed
    reading: Reading


@dataclass(frozen=True, slots=True)
class View:
    """What a page is to show, and how.

    Attributes
    ----------
    runs
        At least one; pages about one run take the first.
    axis, smooth
        What time runs along, and how much curves are smoothed.
    """

    runs: tuple[Shown, ...]
    axis: Axis
    smooth: float

    @property
    def run(self) -> Shown:
        """The first of the runs."""
        return self.runs[0]


def named(found: Sequence[Listed]) -> dict[str, Listed]:
    """Return runs by a name that no two have, and that does not depend on which of them was started last."""
    ids = Counter(one.run for one in found)
    names = [one.run if ids[one.run] == 1 else f"{one.run} ({_folder_of(one)})" for one in found]
    often = Counter(names)
    return {name if often[name] == 1 else one.store: one for name, one in zip(names, found, strict=True)}


def name_of(listed: Listed) -> str:
    """Return the name under which pages show a run."""
    return next((name for name, one in named(listed_runs()).items() if one.store == listed.store), listed.run)


def _folder_of(listed: Listed) -> str:
    return listed.store.rstrip("/").rpartition("/")[2]


def turn_to(path: str) -> None:
    """Show another page instead of this one.

    The script is run anew first: a part of a page that refreshes itself while its page is left breaks the next one.
    """
    st.session_state["wanted page"] = path
    st.rerun()


def run_page(title: str, body: Callable[[View], None], *, overlays: bool = False, axis: bool = True) -> None:
    """Show a page about the chosen runs, refreshed while one of them goes on.

    Parameters
    ----------
    body
        Draws the page; called again at each refresh.
    overlays
        Whether several runs are drawn over each other; else the first is shown.
    axis
        Whether the page has curves over updates or seconds.
    """
    st.title(title)
    warn_if_public()
    with guarded():
        names = named(listed_runs())
        if not names:
            st.info(nothing_here())
            st.fragment(_await_run, run_every=_LOOK_EVERY_S)()
            return
        chosen = _choose(names, overlays=overlays)
        if not chosen:
            st.info("Choose a run on the left.")
            return
        along, smooth, rate = _look(axis=axis)
        shown = tuple(Shown(name, names[name], library().reading(names[name].store)) for name in chosen)
        st.caption(plain(", ".join(_in_words(one) for one in shown)))
        view = View(shown, along, smooth)
        states = [one.listed.state for one in shown]
        # What is being recovered from here is about to be live.
        changes = State.LIVE in states or any(programs.program_of(one.listed.store) for one in shown)
        every = rate if changes else None
        st.fragment(functools.partial(_refreshed, body, view, states), run_every=every)()
        if rate is not None and not changes:
            st.fragment(functools.partial(_await_change, view, states), run_every=_LOOK_AGAIN_S)()


def _in_words(shown: Shown) -> str:
    about = shown.listed.description
    return " · ".join(str(one) for one in (shown.name, about.get("workload"), about.get("policy")) if one)


def nothing_here() -> str:
    """Return what to do where there is no run yet."""
    settings = current()
    return plain(f"There is no run in {settings.folder} yet. Start one on the page Start, or with psplatform train.")


def _await_change(view: View, states: Sequence[State]) -> None:
    """Show the page anew as soon as one of its runs goes on again or has ended; draw nothing until then."""
    with guarded():
        if _states(view) != states:
            st.rerun()


def _states(view: View) -> list[State | None]:
    now = {one.store: one.state for one in listed_runs()}
    return [now.get(one.listed.store) for one in view.runs]


def _await_run() -> None:
    """Show the page anew as soon as there is a run."""
    with guarded():
        if listed_runs():
            st.rerun()


def _choose(names: dict[str, Listed], *, overlays: bool) -> list[str]:
    options = list(names)
    _settle_choice(options)
    chosen: list[str] = st.sidebar.multiselect(
        "Runs",
        options,
        key="run",
        max_selections=MOST_OVERLAID,
        persist_state="session",
        bind="query-params",
        help="Several are drawn over each other where a page can; the others show the first.",
    )
    if len(chosen) > 1 and not overlays:
        st.sidebar.caption(f"This page shows the first: {plain(chosen[0])}")
    return chosen if overlays else chosen[:1]


def _settle_choice(options: list[str]) -> None:
    """Keep the chosen runs that there are; choose the newest where none was chosen, by hand or by the address."""
    chosen = st.session_state.get("run")
    if chosen is None:
        asked = any(name in options for name in st.query_params.get_all("run"))
        settled = None if asked else options[:1]
    else:
        settled = [name for name in chosen if name in options][:MOST_OVERLAID]
        settled = settled or (options[:1] if chosen else [])
    # Streamlit takes a default beside a value of the session for a mistake: so the session alone has it.
    if settled is not None and settled != chosen:
        st.session_state["run"] = settled


def _look(*, axis: bool) -> tuple[Axis, float, float | None]:
    along: Axis = "updates"
    smooth = 0.0
    if axis:
        along = "seconds" if _choice("Along", ["updates", "seconds"], "axis") == "seconds" else "updates"
        smooth = st.sidebar.slider(
            "Smoothing", 0.0, 0.95, 0.0, 0.05, key="smooth", persist_state="session", help="Of training losses."
        )
    rate = _choice("Refresh", list(_RATES), "rate")
    return along, smooth, _RATES[rate]


def _choice(title: str, options: list[str], key: str) -> str:
    chosen = st.sidebar.segmented_control(title, options, default=options[0], key=key, persist_state="session")
    return chosen or options[0]


def _refreshed(body: Callable[[View], None], view: View, states: Sequence[State]) -> None:
    with guarded():
        if _states(view) != states:
            st.rerun()  # what goes on has ended, or the other way round: the whole page says so
        with steady():
            readable = tuple(one for one in view.runs if _is_readable(one))
        if readable:
            with understood(readable[0].listed.store):
                body(replace(view, runs=readable))


def _is_readable(shown: Shown) -> bool:
    """Read a run's log on; say what is wrong with it, and return whether there is anything of it to show."""
    if shown.listed.state is State.FOREIGN:
        st.error(plain(shown.listed.reason))
        return False
    with guarded(), understood(shown.listed.store):
        read_on(shown)
        return True
    # What was read before a damaged segment is known: also of a run that goes on, all but its newest records.
    return shown.reading.read(lambda models: bool(models.view.run))


def read_on(shown: Shown) -> None:
    """Read the run's log to its end, and say how far that is where it takes long."""
    progress = shown.reading.refresh(_BUDGET_S)
    if progress.complete:
        return
    with st.empty():
        while not progress.complete:
            st.progress(progress.segments / progress.of, f"Reading the log of {plain(shown.name)}")
            before, progress = progress, shown.reading.refresh(_BUDGET_S)
            if progress.segments == before.segments:
                break
        st.empty()


class guarded:  # noqa: N801  a context manager reads as a word
    """Says in one sentence what keeps a page from being shown; the page stays."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Show a `PsplatformError`; let others pass."""
        if isinstance(error, PsplatformError):
            st.error(plain(error.args[0] if error.args else error))
            return True
        return False


def warn_if_public() -> None:
    """Say on every page that others can reach it, where they can; and what the scheduler has to say."""
    settings = current()
    if not settings.is_local:
        st.warning(
            f"This page listens on {plain(settings.address)}: anyone who reaches it can start, stop"
            f"{', kill' if settings.allow_chaos else ''} and recover runs."
        )
    found = cluster()
    if found is not None and found.news.trouble and not settings.passing:
        trouble = plain(found.news.trouble.rstrip("."))
        st.warning(
            f"{trouble[:1].upper()}{trouble[1:]}. What is stored is shown; the scheduler is asked again and again."
        )


def steady() -> AbstractContextManager[object]:
    """Return a place for what comes and goes: what is below it, figures with their zoom, stays where it is."""
    return st.container()


def metric(place: DeltaGenerator, label: str, value: object, tip: str | None = None) -> None:
    """Show a value under its label, both word for word: Streamlit takes them for Markdown, and stores say anything."""
    place.metric(plain(label), plain(value), help=tip, border=True)


def draw(figure: go.Figure, key: str, title: str, tip: str | None = None) -> None:
    """Draw a figure under a heading; it keeps its zoom and legend over refreshes, while the same runs are chosen."""
    st.markdown(f"**{title}**", help=tip)
    chart(figure, key, title, " ".join(st.session_state.get("run") or ()))
