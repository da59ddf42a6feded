"""The life of a run on the pages: started, watched, hurt, stopped, opened from its store and continued."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def fill_in(page: Any) -> None:
    """Describe a run that goes on until it is stopped, and takes a checkpoint every few updates."""
    page.choose("workload.digits.network", "perceptron")
    page.unfold("Size and data", "Evaluations", "When it ends", "Replication and checkpoints", "Injected slowness")
    page.enter("job.workers", "2")
    page.enter("job.evaluate_every", "20")
    page.enter("stop.updates", "1000000")
    page.enter("checkpoints.every_updates", "20")
    page.enter("job.stragglers", "constant:seconds=0.02")


def start(page: Any) -> None:
    """Start the run, and open it as soon as it can be."""
    page.visit("start", "Start a run")
    fill_in(page)
    page.press("Start")
    opens = page.page.get_by_role("button", name="Open it", exact=True)
    page.until(opens.is_visible, "the run was started")
    opens.click()
    page.see("Overview")


def see_it_learn(page: Any) -> None:
    """See the version grow, the loss fall and checkpoints come."""
    page.until(lambda: page.metric("Loss") > 0, "a loss is shown")
    first = page.metrics()
    page.until(lambda: page.metrics().get("State") == "live", "the run is live")
    page.until(lambda: page.metric("Version") > float(first["Version"]) + 100, "the version grows")
    page.until(lambda: page.metric("Loss") < 0.7 * float(first["Loss"]), "the loss falls")
    page.until(lambda: page.metrics().get("Checkpoint", "none") != "none", "a checkpoint is written")


def see_it_survive(page: Any) -> None:
    """Kill a server, and see in figure and table what happened, and the version go on."""
    hurt_at = page.metric("Version")
    page.kill_server()
    names = "one => (one.data || []).flatMap(trace => trace.y || []).join()"
    page.until(lambda: "server of shard 0" in page.figure("timeline", names), "the figure shows what was lost")
    rows = page.page.get_by_test_id("stDataFrame").locator("table").filter(has_text="server of shard 0")
    page.until(lambda: rows.count() == 1, "the table names what was lost")
    page.turn_to("Overview")
    page.until(lambda: page.metric("Version") > hurt_at + 100, "the version grows on after the promotion")


def stop(page: Any) -> float:
    """Stop the run in good order; return its last version."""
    page.press("Stop")
    page.until(lambda: page.metrics().get("State") == "finished", "the run is finished")
    page.until(lambda: "stopped on the dashboard" in page.texts, "the page says why it has ended")
    last = page.metric("Version")
    page.turn_to("Programs")
    page.until(lambda: "done" in page.texts, "the program that trained has ended well")
    return float(last)


def test_a_run_is_started_watched_broken_and_stopped_on_the_pages_and_recovered_from_its_store(
    tmp_path: Path,
    processes: Any,
    new_cluster: Callable[..., str],
    serve: Callable[..., str],
    visit: Callable[..., Any],
) -> None:
    page = visit(serve(tmp_path / "runs", "--scheduler", new_cluster(), "--allow-chaos"))
    start(page)
    see_it_learn(page)
    see_it_survive(page)
    last = stop(page)
    for name in ("cluster-scheduler", "cluster-workers", "dashboard"):
        processes.kill(name)

    (store,) = (tmp_path / "runs").iterdir()
    alone = visit(serve(store, name="alone"))
    alone.visit("overview", "Overview")
    alone.until(lambda: alone.metrics().get("State") == "finished", "the finished run is shown")
    alone.until(lambda: alone.metric("Version") == last, "its version is the last one that was shown")

    page = visit(serve(store, "--scheduler", new_cluster(name="second"), name="recovery"))
    page.visit("failures", "Failures and recovery")
    page.press("Recover")
    page.turn_to("Overview")
    page.until(lambda: page.metrics().get("State") == "live", "the run is live again")
    page.until(lambda: page.metric("Version") > last, "the recovered run passes the version that it was stopped at")
    assert not page.page.get_by_test_id("stException").count()
