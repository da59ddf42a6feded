"""What can be done with a run from a page: stop it, recover it, and hurt it where that is allowed."""

from __future__ import annotations

from typing import Any

import streamlit as st

from psplatform.client.listing import Listed, State
from psplatform.dashboard import programs
from psplatform.dashboard.cluster import Cluster, Deed
from psplatform.dashboard.pages.frame import Shown, cluster, cluster_at, guarded, library
from psplatform.dashboard.settings import current
from psplatform.dashboard.words import plain
from psplatform.errors import ConfigurationError

STOPPED = "stopped on the dashboard"


def cluster_of(listed: Listed) -> Cluster | None:
    """Return the scheduler that may be asked about a run: the dashboard's, or that of a program started from here.

    What a store says of its scheduler is followed only where this dashboard has itself started the run in it: Dask
    believes what answers there.
    """
    own = cluster()
    if own is not None and own.knows(listed):
        return own
    address = listed.description.get("scheduler")
    program = programs.program_of(listed.store) if listed.state is State.LIVE and address else None
    if program is not None:
        return cluster_at(str(address), lambda: program.running)
    return own


def stop_button(shown: Shown) -> None:
    """Offer to end a run that goes on in good order, where that can be done from here."""
    if shown.listed.state is not State.LIVE:
        return
    found, program = cluster_of(shown.listed), programs.program_of(shown.listed.store)
    known = found is not None and found.knows(shown.listed)
    if not known and program is None:
        st.caption("This run was started elsewhere: stop it where it was started, or give its scheduler.")
        return
    if st.button("Stop", key="stop", help="End the run in good order: the last version is evaluated and saved."):
        with guarded():
            if known and found is not None:
                found.with_run(shown.listed.run, lambda run: run.stop(STOPPED))
            elif program is not None:
                program.interrupt()
            st.toast("The run is stopping: the last version is evaluated and saved.")


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
        st.info("It is being recovered: see the page Programs.")
        return
    before = listed.description.get("job") or {}
    versions = {one["number"]: f"checkpoint {one['number']}, version {one['version']}" for one in held}
    with st.form("recover", border=True):
        columns = st.columns(5)
        number = columns[0].selectbox("From", list(reversed(versions)), format_func=lambda one: versions[one])
        workers = columns[1].text_input("Workers", placeholder=f"as before: {before.get('workers') or 'all'}")
        shards = columns[2].text_input("Shards", placeholder=f"as before: {before.get('shards')}")
        policy = columns[3].text_input("Policy", placeholder=f"as before: {before.get('policy')}")
        updates = columns[4].text_input("Stop at version", placeholder="as before")
        if st.form_submit_button("Recover", type="primary"):
            with guarded():
                options = {"--workers": workers, "--shards": shards, "--policy": policy, "--updates": updates}
                programs.start(recover_arguments(listed, number, options))
                library().forget_list()
                st.toast("The run is being recovered; the page Programs shows how that goes.")


def recover_arguments(listed: Listed, number: object, options: dict[str, str]) -> list[str]:
    """Return the command that recovers a run from a checkpoint with the options that are not empty.

    Raises
    ------
    ConfigurationError
        If the checkpoint is no number, or an option is not a word: what begins with a dash would be another option.
    """
    if not isinstance(number, int):
        raise ConfigurationError(f"a checkpoint has a number, not {number!r}; choose one of the list", field="number")
    # What answers at an address in a store is not believed because somebody pressed a button.
    arguments = ["recover", listed.store, "--checkpoint", str(number), "--no-ask-store-scheduler"]
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
