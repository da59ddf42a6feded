"""What can be done with a run from a page: stop it, recover it, and hurt it where that is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import streamlit as st

from psplatform.client.runs import records
from psplatform.client.runs.listing import Listed, State
from psplatform.client.runs.programs import Program
from psplatform.dashboard import programs
from psplatform.dashboard.cluster import Cluster, Deed
from psplatform.dashboard.pages.frame import Shown, cluster, cluster_at, guarded, library
from psplatform.dashboard.settings import current
from psplatform.dashboard.words import plain
from psplatform.errors import ClusterError, ConfigurationError, PsplatformError

if TYPE_CHECKING:
    from psplatform.client.run import Run

STOPPED = "stopped on the dashboard"

_STOPPING: Final = "The run is stopping: the last version is evaluated and saved."


def cluster_of(listed: Listed) -> Cluster | None:
    """Return the scheduler that may be asked about a run: the dashboard's, or that of a program started from here.

    What a store says of its scheduler is not believed: the user's own records name that of a program started from here.
    """
    own = cluster()
    if own is not None and own.knows(listed):
        return own
    program = programs.program_of(listed.store) if listed.state is State.LIVE else None
    record = records.known(listed.run, listed.store) if program is not None else None
    if program is not None and record is not None:
        return cluster_at(record.scheduler, lambda: program.running)
    return own


def stop_button(shown: Shown) -> None:
    """Offer to end a run that goes on in good order, where that can be done from here."""
    if shown.listed.state is not State.LIVE:
        return
    found, program = cluster_of(shown.listed), programs.program_of(shown.listed.store)
    known = found is not None and found.knows(shown.listed)
    if known or program is not None:
        tip = "End the run in good order: the last version is evaluated and saved."
        act = ("stop", shown.listed, lambda: _stop(shown.listed, found, program))
        st.button("Stop", key="stop", help=tip, disabled=_is_under_way("stop", shown.listed), on_click=_do, args=act)
    else:
        st.caption("This run was started elsewhere: stop it where it was started, or give its scheduler.")
    _say_outcome("stop", shown.listed)


def _stop(listed: Listed, found: Cluster | None, program: Program | None) -> Deed | str:
    if found is not None and found.knows(listed):
        return found.begin(listed.run, "stopping the run", _stop_in_good_order, kind="stop")
    if program is not None and program.interrupt():
        return _STOPPING
    where = "stop it where it was started" if program is None else "look at the page Programs"
    raise ClusterError(f"nothing was stopped: neither the scheduler nor a program of this page has the run; {where}")


def _stop_in_good_order(run: Run) -> str:
    run.stop(STOPPED)
    return _STOPPING


def recover_form(shown: Shown) -> None:
    """Offer to continue a run that is not live from a checkpoint."""
    listed = shown.listed
    if listed.state is State.LIVE:
        return
    held = [one for one in library().checkpoints(listed.store) if one["state"] == "complete"]
    st.markdown("**Recover**", help="Continue the run from a checkpoint, in the same store.")
    if not held:
        st.caption("No complete checkpoint is held: there is nothing to continue from.")
        return
    program = programs.program_of(listed.store)
    if program is not None:
        st.session_state.pop(_outcome_of("recover", listed), None)
        st.info("It is being recovered: see the page Programs.")
        return
    before = listed.description.get("job") or {}
    versions = {one["number"]: f"checkpoint {one['number']}, version {one['version']}" for one in held}
    with st.form("recover", border=True):
        columns = st.columns(5)
        columns[0].selectbox(
            "From", list(reversed(versions)), format_func=lambda one: versions[one], key=_field(listed, "from")
        )
        fields = {
            "--workers": ("Workers", f"as before: {before.get('workers') or 'all'}"),
            "--shards": ("Shards", f"as before: {before.get('shards')}"),
            "--policy": ("Policy", f"as before: {before.get('policy')}"),
            "--updates": ("Stop at version", "as before"),
        }
        for column, (flag, (label, usual)) in zip(columns[1:], fields.items(), strict=True):
            column.text_input(label, placeholder=usual, key=_field(listed, flag))
        act = ("recover", listed, lambda: _recover(listed, tuple(fields)))
        st.form_submit_button("Recover", type="primary", on_click=_do, args=act)
    _say_outcome("recover", listed)


def _recover(listed: Listed, flags: Sequence[str]) -> str:
    options = {flag: str(st.session_state[_field(listed, flag)]) for flag in flags}
    programs.start(recover_arguments(listed, st.session_state[_field(listed, "from")], options))
    library().forget_list()
    return "The run is being recovered; the page Programs shows how that goes."


def _field(listed: Listed, name: str) -> str:
    """Return the key of a field of the form for one run: what was filled in for another is not for this one."""
    return f"recover {name} {listed.store}"


def _do(button: str, listed: Listed, act: Callable[[], Deed | str]) -> None:
    """Do what a button is for, and say what was done or why it was not.

    To be called by the button itself: so it is done even if the visitor turns to another page at once.
    """
    key = _outcome_of(button, listed)
    st.session_state.pop(key, None)
    try:
        done = act()
        if isinstance(done, Deed):
            st.session_state[key] = done
        else:
            st.toast(done)
    except PsplatformError as error:
        st.session_state[key] = error


def _outcome_of(button: str, listed: Listed) -> str:
    """Return the key of what came of the last press for one run: it says nothing of another."""
    return f"outcome of {button} {listed.store}"


def _is_under_way(button: str, listed: Listed) -> bool:
    deed = st.session_state.get(_outcome_of(button, listed))
    return isinstance(deed, Deed) and deed.running


def _say_outcome(button: str, listed: Listed) -> None:
    """Say what came of the last press until the next one."""
    outcome: Deed | PsplatformError | None = st.session_state.get(_outcome_of(button, listed))
    with guarded():
        if isinstance(outcome, Deed):
            _say_of(outcome)
        elif outcome is not None:
            raise outcome


def recover_arguments(listed: Listed, number: object, options: dict[str, str]) -> list[str]:
    """Return the command that recovers a run from a checkpoint with the options that are not empty.

    Raises
    ------
    ConfigurationError
        If the checkpoint is no number, or an option is not a word: what begins with a dash would be another option.
    """
    if not isinstance(number, int):
        raise ConfigurationError(f"a checkpoint has a number, not {number!r}; choose one of the list", field="number")
    arguments = ["recover", listed.store, "--checkpoint", str(number)]
    for flag, text in options.items():
        if text.strip():
            if text.strip().startswith("-"):
                raise ConfigurationError(f"{flag} cannot be {text.strip()!r}; give a number or a name", field=flag)
            arguments += [flag, text.strip()]
    scheduler = current().starts_on
    return [*arguments, *(["--scheduler", scheduler] if scheduler else []), "--json"]


def chaos_buttons(shown: Shown) -> None:
    """Offer to kill or pause processes of a run that goes on, where that is allowed."""
    if not current().allow_chaos or shown.listed.state is not State.LIVE:
        return
    st.markdown("**Break it on purpose**", help="SIGKILL ends a process at once; SIGSTOP pauses it for some seconds.")
    found = cluster_of(shown.listed)
    if found is None or not found.knows(shown.listed):
        st.caption("The run's scheduler is not known here: give it with --scheduler.")
        return
    run = shown.listed.run
    watched, deed = found.watched(run), found.deed(run)
    kinds = {one.role: one.kind for one in watched.targets or ()}
    columns = st.columns([3, 1, 1, 2], vertical_alignment="bottom")
    columns[0].selectbox(
        "Process of", list(kinds), format_func=lambda role: f"{role} ({kinds.get(role, 'gone')})", key="target"
    )
    columns[3].number_input("Seconds of a pause", 1, 600, 10, key="pause seconds")
    idle = bool(kinds) and not (deed is not None and deed.running)
    shared: dict[str, Any] = {"width": "stretch", "disabled": not idle, "args": (found, run)}
    columns[1].button("Kill", key="kill", type="primary", help="SIGKILL", on_click=_kill, **shared)
    columns[2].button("Pause", key="pause", help="SIGSTOP, and SIGCONT later", on_click=_pause, **shared)
    if watched.trouble:
        st.caption(plain(f"The run's coordinator does not say who hosts what: {watched.trouble}"))
    elif watched.targets is None:
        st.caption("The run's coordinator is asked who hosts what.")
    if deed is not None:
        _say_of(deed)


def _kill(found: Cluster, run: str) -> None:
    from psplatform.client import chaos  # noqa: PLC0415  brings Dask

    role = st.session_state["target"]
    found.begin(run, f"killing the process of {role}", lambda one: f"Killed process {chaos.kill(one, role)} of {role}.")


def _pause(found: Cluster, run: str) -> None:
    from psplatform.client import chaos  # noqa: PLC0415  brings Dask

    role, seconds = st.session_state["target"], st.session_state["pause seconds"]
    found.begin(
        run,
        f"pausing the process of {role}",
        lambda one: f"Paused process {chaos.pause(one, role, float(seconds))} of {role} for {seconds} s.",
    )


def _say_of(deed: Deed) -> None:
    if deed.running:
        st.caption(plain(f"Under way: {deed.what}."))
        return
    with guarded():
        st.caption(plain(deed.outcome()))
