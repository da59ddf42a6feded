"""A new run: configured by forms made of the declarations, previewed in the simulator, and started."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from psplatform.client.runs.listing import State, look_at
from psplatform.client.starting.job_files import with_horizon
from psplatform.core.parameters import parameters_of, require_known
from psplatform.core.plan import Stop
from psplatform.dashboard import programs
from psplatform.dashboard.figures import expected as expected_figures
from psplatform.dashboard.forms import jobs
from psplatform.dashboard.forms.fields import Filled, fill
from psplatform.dashboard.pages.expectations import show_expected
from psplatform.dashboard.pages.frame import (
    draw,
    guarded,
    library,
    listed_runs,
    name_of,
    named,
    turn_to,
    warn_if_public,
)
from psplatform.dashboard.read_models.expected import Expected
from psplatform.dashboard.settings import current
from psplatform.dashboard.simulations import Simulation, simulate
from psplatform.dashboard.starting import require_sensible, start_job, usual
from psplatform.dashboard.words import plain
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.optimizers import OPTIMIZERS
from psplatform.jobs.replication import MODES, Bounded
from psplatform.jobs.schedules import SCHEDULES
from psplatform.policies.registry import policy_class, policy_names
from psplatform.workloads.registry import WORKLOADS, find_workload

_SIZES: Final = ("workers", "shards", "batch_size", "sampling", "clip_norm", "compression", "seed")
_MEASURED: Final = ("evaluate_every", "evaluate_on", "metrics", "watch", "keep_best")
_SLOWNESS: Final = ("stragglers", "slow_servers")
_EPOCHS: Final = 15
"""Passes over the data that a preview is simulated for at most: some seconds, whatever the run is to take."""

_USUAL: Final = "bsp"


def page() -> None:
    """Show the page."""
    st.title("Start a run")
    warn_if_public()
    with guarded():
        left, right = st.columns([3, 2], gap="large")
        with left:
            job, errors = _form()
        with right:
            _commands(job, errors=errors)
            _start(job, errors=errors)
            _preview(job, errors=errors)


def _form() -> tuple[dict[str, Any], int]:
    job, errors, subject = _subject()
    errors += _policy(job, subject)
    errors += _optimizer(job, subject)
    declared = {one.name: one for one in parameters_of(Job)}
    with st.expander("Size and data"):
        errors += _merge(job, fill([declared[name] for name in _SIZES], "job", before=_before(job)))
    with st.expander("Evaluations"):
        measured = fill([declared[name] for name in _MEASURED], "job", before=_before(job) | jobs.metrics_words(job))
        errors += _merge(job, measured)
    with st.expander("When it ends"):
        stop = dict(job.get("stop") or {})
        filled = fill(parameters_of(Stop), "stop", before=stop)
        errors += len(filled.errors)
        if stop | filled.values:
            job["stop"] = stop | filled.values
    with st.expander("Replication and checkpoints"):
        errors += _replication(job, subject)
        errors += _checkpoints(job)
    with st.expander("Injected slowness"):
        slowness = [declared[name] for name in _SLOWNESS]
        errors += _merge(job, fill(slowness, "job", columns=1, before=jobs.slowness_of(job)))
        st.caption(
            "Clauses between semicolons, such as `shifted-exponential:shift=0.02,mean=0.05;slow:chance=0.1,factor=4`."
        )
    return job, errors


def _subject() -> tuple[dict[str, Any], int, str]:
    """Return the fields of what is to be trained, how many of them are wrong, and what it is called here."""
    own = {f"job file {name}": path for name, path in current().jobs}
    runs = named(listed_runs()).items()
    stored = {f"job of the run {name}": one for name, one in runs if one.state is not State.FOREIGN}
    bundled = {name: f"{name}: {one.help.partition(',')[0]}" for name, one in WORKLOADS.items()}
    chosen = st.selectbox(
        "What to train",
        [*bundled, *own, *stored],
        key="what",
        format_func=lambda one: bundled.get(one, one),
        persist_state="session",
        help="Bundled workloads, job files named on the command line, and the jobs that stores describe.",
    )
    if chosen in own:
        _say_scheduler(jobs.scheduler_in(own[chosen]))
        return jobs.job_in(own[chosen]), 0, chosen
    if chosen in stored:
        return jobs.job_of(stored[chosen].description), 0, chosen
    workload = find_workload(str(chosen))
    filled = fill(workload.parameters, f"workload.{chosen}")
    job: dict[str, Any] = {"workload": workload.name}
    if filled.values:
        job["options"] = filled.values
    return job, len(filled.errors), str(chosen)


def _say_scheduler(named: str | None) -> None:
    """Say where a run starts instead, if its job file names another scheduler."""
    where = current().starts_on
    if named and named != where:
        place = f"on {where}" if where else "on a cluster of this machine"
        text = f"The job file names the scheduler {named}; from here the run starts {place}."
        st.caption(plain(f"{text} Start the dashboard with --scheduler {named} to use it."))


def _policy(job: dict[str, Any], subject: str) -> int:
    names = policy_names()
    before = str(job.get("policy", _USUAL))
    missing = before not in names
    options = names if not missing else [before, *names]
    name = st.selectbox("Policy", options, index=options.index(before), key=f"policy of {subject}")
    if name not in names:
        st.error(plain(f"The policy {name} is not installed here: install its package, or choose another."))
        return 1
    factory = policy_class(str(name))
    st.caption(plain(_about(factory)))
    if str(name) != before:
        job.pop("policy_options", None)
    job["policy"] = name
    filled = fill(parameters_of(factory), f"policy.{name}", before=job.get("policy_options"))
    if filled.values:
        job["policy_options"] = {**(job.get("policy_options") or {}), **filled.values}
    return len(filled.errors)


def _about(factory: type[Any]) -> str:
    """Return what a policy does, what it guarantees and where it is from."""
    text = factory.__doc__ or ""
    parts = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    guarantees = [part for part in parts[1:] if part.startswith("Guarantee")]
    source = f"Source: {factory.source}" if getattr(factory, "source", "") else ""
    return " ".join(filter(None, [parts[0] if parts else "", *guarantees[:1], source]))


def _optimizer(job: dict[str, Any], subject: str) -> int:
    with st.expander("Optimiser and learning rate"):
        before = {"name": "sgd", **_spec(job, "optimizer", "name")}
        # What the workload suggests holds where a job says nothing but the name, as on the command line.
        suits = _defaults_of(job) if before == {"name": "sgd"} else {}
        name, filled = _member("Optimiser", "optimizer", OPTIMIZERS, {**suits, **before}, subject)
        if filled.values or name != before["name"]:
            kept = {**suits, **before} if name == before["name"] else {}
            job["optimizer"] = {**kept, "name": name, **filled.values}
        plan = {"name": "constant", **_spec(job, "schedule", "name")}
        plan |= with_horizon(job.get("schedule"), job.get("stop") or {}) if plan == {"name": "cosine"} else {}
        schedule, steps = _member("Schedule", "schedule", SCHEDULES, plan, subject)
        if steps.values or schedule != plan["name"]:
            kept = plan if schedule == plan["name"] else {}
            job["schedule"] = {**kept, "name": schedule, **steps.values}
        return len(filled.errors) + len(steps.errors)


def _member(
    title: str, field: str, family: Mapping[str, type], before: Mapping[str, Any], subject: str
) -> tuple[str, Filled]:
    """Show the choice of a member of a family, and the fields of the chosen one."""
    names = list(family)
    require_known(before["name"], names, f"there is no {field}", field=field)
    name = str(st.selectbox(title, names, index=names.index(before["name"]), key=f"{field} of {subject}"))
    filled = fill(parameters_of(family[name]), f"{field}.{name}", before=before if name == before["name"] else None)
    return name, filled


def _spec(job: Mapping[str, Any], field: str, first: str) -> dict[str, Any]:
    """Return what a job says of a field with parts, of which a plain word is the first."""
    given = job.get(field)
    return {first: given} if isinstance(given, str) else dict(given or {})


def _defaults_of(job: Mapping[str, Any]) -> dict[str, Any]:
    defaults = usual(job)
    return {name: defaults[name] for name in ("lr", "momentum") if name in defaults}


def _replication(job: dict[str, Any], subject: str) -> int:
    before = _spec(job, "replication", "mode")
    if before:
        require_known(before.setdefault("mode", Bounded.mode), MODES, "replication has no mode", field="replication")
    modes = ["as usual", *MODES]
    tip = "8 updates behind at most, if nothing is said."
    index = modes.index(before.get("mode", modes[0]))
    mode = st.selectbox("Replication", modes, index=index, key=f"mode of {subject}", help=tip)
    if mode == "as usual":
        job.pop("replication", None)
        return 0
    kept = {name: value for name, value in before.items() if name != "mode"} if before.get("mode") == mode else {}
    filled = fill(parameters_of(MODES[mode]), f"replication.{mode}", before=kept)
    job["replication"] = {**kept, "mode": mode, **filled.values}
    return len(filled.errors)


def _checkpoints(job: dict[str, Any]) -> int:
    given = job.get("checkpoints")
    found = Checkpoints.from_plain(given).to_plain() if given is not None else {}
    before = {name: value for name, value in found.items() if value is not None}
    filled = fill(parameters_of(Checkpoints), "checkpoints", before=before)
    if filled.values:
        job["checkpoints"] = {**before, **filled.values}
    return len(filled.errors)


def _merge(job: dict[str, Any], filled: Filled) -> int:
    job.update(filled.values)
    for name in [name for name, value in filled.values.items() if value is None]:
        del job[name]
    return len(filled.errors)


def _before(job: Mapping[str, Any]) -> dict[str, Any]:
    defaults = usual(job)
    size = {"batch_size": int(defaults["batch_size"])} if "batch_size" in defaults else {}
    return {**size, **job}


def _commands(job: Mapping[str, Any], *, errors: int) -> None:
    st.markdown("**The same from a terminal**", help="Copy either; the job file can be kept beside your code.")
    command = jobs.as_command(job, current())
    scheduler = f" --scheduler {shlex.quote(current().starts_on or '')}" if current().starts_on else ""
    st.code(command or f"psplatform train job.yaml{scheduler}", language="bash", wrap_lines=True)
    with st.expander("job.yaml", expanded=command is None):
        st.code(jobs.as_yaml(job), language="yaml")
    if errors:
        st.warning("Some fields cannot be used as they are: see what is said below them.")


def _start(job: Mapping[str, Any], *, errors: int) -> None:
    where = current().starts_on or "a cluster on this machine"
    if st.button("Start", type="primary", key="start", disabled=bool(errors), help=plain(f"On {where}.")):
        with guarded():
            st.session_state["starting"] = start_job(job)
            library().forget_list()
    store = st.session_state.get("starting")
    if store:
        st.fragment(lambda: _opening(store), run_every=1.0)()


def _opening(store: str) -> None:
    found, program = look_at(store), programs.program_of(store)
    if found.state is not State.FOREIGN:
        st.success(plain(f"{found.run} was started."))
        if st.button("Open it", key="open started"):
            library().forget_list()
            st.session_state["run"] = [name_of(found)]
            st.session_state.pop("starting", None)
            turn_to("overview")
    elif program is not None:
        st.info("Starting: processes are started and a first gradient is tried, which takes some seconds.")
    else:
        ended = next((one for one in programs.started() if store in one.command), None)
        said = ended.output(3).strip().splitlines()[-1:] if ended is not None else []
        st.error(plain(said[0] if said else "The program ended before the run began; the page Programs says why."))


def _preview(job: Mapping[str, Any], *, errors: int) -> None:
    st.markdown(
        "**What to expect**",
        help="The simulator runs this job, and the same job under the default policy, on a modelled cluster: a tenth "
        "of a second for a gradient unless slowness is injected, a network that takes no time, and at most "
        f"{_EPOCHS} passes over the data.",
    )
    if st.button("Simulate first", key="preview", disabled=bool(errors)):
        with guarded():
            require_sensible(job)
            for before in st.session_state.get("previews", ()):
                before.program.kill()
            st.session_state["previews"] = [
                simulate(_bounded(job), name="as configured"),
                simulate(_bounded(_as_usual(job)), name=f"default ({_USUAL})"),
            ]
    previews: list[Simulation] | None = st.session_state.get("previews")
    if previews:
        every = 1.0 if any(one.running for one in previews) else None
        st.fragment(lambda: _expected(previews, refreshed=every is not None), run_every=every)()


def _bounded(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job with an end that comes soon, whatever the policy achieves."""
    stop = dict(job.get("stop") or {})
    if not stop:
        stop = {name: value for name, value in usual(job).items() if name == "target_accuracy"}
    stop["epochs"] = min(_EPOCHS, stop.get("epochs") or _EPOCHS)
    return {**job, "stop": stop, "evaluate_every": job.get("evaluate_every") or 5}


def _as_usual(job: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in job.items() if name not in ("policy", "policy_options", "optimizer")}
    return {**kept, "policy": _USUAL}


def _expected(previews: list[Simulation], *, refreshed: bool) -> None:
    running = [one for one in previews if one.running]
    if refreshed and not running:
        st.rerun()  # nothing is to come: the page need not be refreshed any more
    if running:
        st.progress(1 - len(running) / len(previews), "Simulating in the background")
    found: list[Expected] = []
    for one in previews:
        if not one.running:
            rows, failed = one.found()
            found += rows
            for text in [*failed.values(), *([one.trouble()] if not rows and not failed else [])]:
                st.error(plain(f"{one.name}: {text}"))
    if found:
        show_expected(found)
        if not running:
            draw(expected_figures.losses(found), "preview losses", "Loss")
