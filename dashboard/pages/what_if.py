"""What a run's own job would do under other policies, stragglers and networks, in the simulator."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import streamlit as st

from psplatform.dashboard.figures import expected as expected_figures
from psplatform.dashboard.forms import jobs
from psplatform.dashboard.pages.expectations import fastest_first, show_expected
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
from psplatform.dashboard.read_models.expected import Expected
from psplatform.dashboard.records import write_private
from psplatform.dashboard.simulations import Simulation, simulate
from psplatform.dashboard.starting import start_job
from psplatform.dashboard.words import plain
from psplatform.errors import ConfigurationError
from psplatform.jobs.stragglers import Stragglers
from psplatform.policies.registry import policy_names
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.trace import run_times, to_csv

_EPOCHS: Final = 30
_MOST: Final = 8

_MOST_RECORDS: Final = 1_000_000
"""Of a log that is read for run times, from its beginning: some seconds."""

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
        own = jobs.job_of(listed.description)
        job = _simulated(own, listed.description)
        shown = Shown(str(name), listed, library().reading(listed.store))
        policies, conditions = _conditions(shown, job)
        if st.button("Simulate", type="primary", key="simulate", disabled=not policies):
            for before in st.session_state.get("what if results", ()):
                before.program.kill()
            st.session_state["what if job"] = own
            st.session_state["what if results"] = _begin(own, job, policies, conditions(job))
    found: list[Simulation] | None = st.session_state.get("what if results")
    if found:
        running = any(one.running for one in found)
        st.fragment(lambda: _results(found, refreshed=running), run_every=1.0 if running else None)()


def _begin(
    own: Mapping[str, Any], job: dict[str, Any], policies: Sequence[str], conditions: Sequence[str]
) -> list[Simulation]:
    """Begin to simulate the job under its own policy with its own parameters, and under the others as they are."""
    others = [name for name in policies if name != own.get("policy")]
    found = [simulate(job, policies=others, conditions=conditions)] if others else []
    if own.get("policy") in policies:
        same = {**job, "policy": own["policy"], "policy_options": own.get("policy_options") or {}}
        found.append(simulate(same, name=str(own["policy"]), conditions=conditions))
    return found


def _simulated(job: dict[str, Any], description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job as it is simulated: with as many workers as the run had, and an end that comes for certain."""
    stop = {name: value for name, value in (job.get("stop") or {}).items() if value is not None}
    if not {"updates", "epochs", "seconds"} & stop.keys():
        stop["epochs"] = _EPOCHS
    rest = {name: value for name, value in job.items() if name != "policy_options"}
    return {**rest, "workers": description.get("workers") or job.get("workers"), "stop": stop, "evaluate_every": 5}


def _conditions(shown: Shown, job: dict[str, Any]) -> tuple[list[str], Callable[[dict[str, Any]], list[str]]]:
    """Return the chosen policies, and what turns a job into the options of the command, the job changed accordingly."""
    names = policy_names()
    own = [job.get("policy")] if job.get("policy") in names else []
    usual = [name for name in dict.fromkeys([*own, "bsp", "ssp", "dbw"]) if name in names]
    policies = st.multiselect("Policies", names, default=usual, max_selections=_MOST, key="policies")
    way, described = _times_and_network()
    stragglers = st.text_input("Stragglers", key="what if stragglers", placeholder="slow:chance=0.1,factor=4")
    timing_only = st.toggle("Times only", key="timing only", help="No gradients: any number of workers, and no loss.")

    def options(chosen: dict[str, Any]) -> list[str]:
        chosen.pop("stragglers", None)
        if stragglers.strip():
            Stragglers.parse(stragglers)  # which refuses a trace
            chosen["stragglers"] = stragglers.strip()
        if way == _MEASURED:
            trace, slots = _trace_of(shown)
            # A trace is of as many workers as it has slots, which may be others than the run began with.
            chosen |= {"workers": slots, **({"max_workers": slots} if chosen.get("max_workers") else {})}
            found = ["--round-trip", f"trace:{trace}"]
        else:
            found = [word for flag, text in described.items() if text.strip() for word in (flag, _word(text))]
        if timing_only:
            targets = ("target_loss", "target_accuracy")
            chosen["stop"] = {name: one for name, one in chosen["stop"].items() if name not in targets}
        return [*found, *(["--timing-only"] if timing_only else [])]

    return policies, options


def _times_and_network() -> tuple[str, dict[str, str]]:
    """Return how long gradients take, as described or as measured, and the words that describe it by option."""
    columns = st.columns(3)
    tip = "Measured: pull, gradient and push together."
    way = columns[0].selectbox("Times of gradients", [_DESCRIBED, _MEASURED], key="times", help=tip)
    measured = way == _MEASURED
    tip = "Seconds of a gradient: a distribution, as on the command line."
    usual = "shifted-exponential:shift=0.05,mean=0.1"
    compute = columns[1].text_input("Compute", usual, key="compute", disabled=measured, help=tip)
    tip, example = "Interfaces of the hosts; none: takes no time.", "nic:gbps=10,latency=0.0001"
    network = columns[2].text_input("Network", key="network", disabled=measured, placeholder=example, help=tip)
    return str(way), {"--compute": compute, "--network": network}


def _word(text: str) -> str:
    """Return a description of a cluster that reads no file: what the browser says names none."""
    kinds = [clause.partition(":")[0].strip() for clause in text.split(";")]
    if "trace" in kinds or text.strip().startswith("-"):
        raise ConfigurationError("a trace cannot be named here; choose the times measured in this run", field="compute")
    return text.strip()


def _trace_of(shown: Shown) -> tuple[str, int]:
    """Write the run times of a run's first gradients into a file of this user's own; return it, and how many slots."""
    with st.spinner("Reading the run times"):
        times = run_times(islice(_records(shown.listed.store), _MOST_RECORDS))
    if not times:
        raise ConfigurationError("the run has no run times yet; describe them instead", field="compute")
    name = hashlib.sha256(shown.listed.store.encode()).hexdigest()[:16]
    return write_private("traces", f"{name}.csv", to_csv(times)), len({one.slot for one in times})


def _records(store: str) -> Iterator[Record]:
    for found, _ in LogReader(store).iter_from():
        yield from found


def _results(simulations: Sequence[Simulation], *, refreshed: bool) -> None:
    running = sum(one.running for one in simulations)
    if refreshed and not running:
        st.rerun()  # nothing is to come: the page need not be refreshed any more
    if running:
        st.progress(1 - running / len(simulations), "Simulating in the background")
    found: list[Expected] = []
    for one in simulations:
        if not one.running:
            rows, failed = one.found()
            found += rows
            for name, text in failed.items():
                st.warning(plain(f"{name}: {text}"))
            if not rows and not failed:
                st.error(plain(one.trouble()))
    if found:
        draw(expected_figures.losses(found), "what if losses", "Loss against virtual time")
        show_expected(found)
    if found and not running:
        _start_winner(found)


def _start_winner(found: list[Expected]) -> None:
    best = fastest_first(found)[0]
    if st.button(plain(f"Start it with {best.name}"), key="start winner", type="primary"):
        with guarded():
            own = st.session_state["what if job"]
            kept = own if best.name == own.get("policy") else {**own, "policy_options": {}}
            start_job({**kept, "policy": best.name})
            turn_to("programs")
