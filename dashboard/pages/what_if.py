"""What a run's own job would do under other policies, stragglers and networks, in the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from psplatform.dashboard.figures import expected as expected_figures
from psplatform.dashboard.forms import jobs
from psplatform.dashboard.pages.frame import (
    Shown,
    draw,
    guarded,
    library,
    listed_runs,
    named,
    nothing_here,
    turn_to,
    warn_if_public,
)
from psplatform.dashboard.pages.start import show_expected, start_job
from psplatform.dashboard.pages.words import plain
from psplatform.dashboard.settings import current
from psplatform.dashboard.simulations import Expected, Simulation, simulate
from psplatform.errors import ConfigurationError
from psplatform.policies.registry import policy_names
from psplatform.telemetry.reader import LogReader
from psplatform.telemetry.trace import run_times, to_csv

_EPOCHS: Final = 30
_MOST: Final = 8
_MEASURED: Final = "as measured in this run"
_DESCRIBED: Final = "described"


def page() -> None:
    """Show the page."""
    st.title("What if")
    st.caption("The run's own job in the simulator: the same policies and the same arithmetic, on a clock that jumps.")
    warn_if_public()
    with guarded():
        names = named(listed_runs())
        if not names:
            st.info(nothing_here())
            return
        name = st.selectbox("Job of the run", list(names), key="what if", persist_state="session")
        listed = names[str(name)]
        job = _simulated(jobs.job_of(listed.description), listed.description)
        shown = Shown(str(name), listed, library().reading(listed.store))
        policies, conditions = _conditions(shown, job)
        if st.button("Simulate", type="primary", key="simulate", disabled=not policies):
            st.session_state["what if job"] = job
            st.session_state["what if results"] = simulate(job, policies=policies, conditions=conditions(job))
    found: Simulation | None = st.session_state.get("what if results")
    if found is not None:
        st.fragment(lambda: _results(found), run_every=1.0 if found.running else None)()


def _simulated(job: dict[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job as it is simulated: with as many workers as the run had, and an end that comes for certain."""
    stop = {name: value for name, value in (job.get("stop") or {}).items() if value is not None}
    if not {"updates", "epochs", "seconds"} & stop.keys():
        stop["epochs"] = _EPOCHS
    job.pop("policy_options", None)
    return {**job, "workers": description.get("workers") or job.get("workers"), "stop": stop, "evaluate_every": 5}


def _conditions(shown: Shown, job: dict[str, Any]) -> tuple[list[str], Any]:
    names = policy_names()
    own = [job.get("policy")] if job.get("policy") in names else []
    usual = [name for name in dict.fromkeys([*own, "bsp", "ssp", "dbw"]) if name in names]
    policies = st.multiselect("Policies", names, default=usual, max_selections=_MOST, key="policies")
    columns = st.columns(3)
    ways = [_DESCRIBED, _MEASURED]
    way = columns[0].selectbox(
        "Times of gradients", ways, key="times", help="Measured: pull, gradient and push together."
    )
    compute = columns[1].text_input(
        "Compute",
        "shifted-exponential:shift=0.05,mean=0.1",
        key="compute",
        disabled=way == _MEASURED,
        help="Seconds of a gradient: a distribution, as on the command line.",
    )
    network = columns[2].text_input(
        "Network",
        key="network",
        disabled=way == _MEASURED,
        placeholder="nic:gbps=10,latency=0.0001",
        help="Interfaces of the hosts; none: takes no time.",
    )
    stragglers = st.text_input("Stragglers", key="what if stragglers", placeholder="slow:chance=0.1,factor=4")
    timing_only = st.toggle("Times only", key="timing only", help="No gradients: any number of workers, and no loss.")

    def options(chosen: dict[str, Any]) -> list[str]:
        chosen.pop("stragglers", None)
        if stragglers.strip():
            chosen["stragglers"] = stragglers.strip()
        if way == _MEASURED:
            found = ["--round-trip", f"trace:{_trace_of(shown)}"]
        else:
            found = ["--compute", _word(compute)] if compute.strip() else []
            found += ["--network", _word(network)] if network.strip() else []
        if timing_only:
            targets = ("target_loss", "target_accuracy")
            chosen["stop"] = {name: one for name, one in chosen["stop"].items() if name not in targets}
        return [*found, *(["--timing-only"] if timing_only else [])]

    return policies, options


def _word(text: str) -> str:
    """Return a description of a cluster that reads no file: what the browser says names none."""
    if "trace" in text or text.strip().startswith("-"):
        raise ConfigurationError("a trace cannot be named here; choose the times measured in this run", field="compute")
    return text.strip()


def _trace_of(shown: Shown) -> str:
    """Write the run times of a run into this user's records; return the file."""
    records = (record for found, _ in LogReader(shown.listed.store).iter_from() for record in found)
    times = run_times(records)
    if not times:
        raise ConfigurationError("the run has no run times yet; describe them instead", field="compute")
    folder = current().record_folder / "traces"
    path = folder / f"{abs(hash(shown.listed.store)):x}.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(to_csv(times))
    except OSError as error:
        raise ConfigurationError(f"cannot write {path} ({error}); free some space", field="compute") from error
    return str(path)


def _results(simulation: Simulation) -> None:
    if simulation.running:
        st.progress(0.5, "Simulating in the background")
        return
    found, failed = simulation.found()
    for name, text in failed.items():
        st.warning(plain(f"{name}: {text}"))
    if not found:
        st.error(plain(simulation.trouble()))
        return
    draw(expected_figures.losses(found), "what if losses", "Loss against virtual time")
    show_expected(found)
    _start_winner(found)


def _start_winner(found: list[Expected]) -> None:
    best = min(found, key=lambda one: (one.reached is False, one.seconds))
    if st.button(plain(f"Start it with {best.name}"), key="start winner", type="primary"):
        with guarded():
            job = {**st.session_state["what if job"], "policy": best.name}
            start_job(job)
            turn_to("programs")
