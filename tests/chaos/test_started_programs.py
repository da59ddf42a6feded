"""A training that was started as a program of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from psplatform.client.runs.programs import programs, start
from psplatform.replication.stores.store import describe_run

FLAGS = ["-w", "samples=2000", "--workers", "2", "--updates", "1000000000", "--stragglers", "constant:seconds=0.01"]


def test_a_training_that_is_interrupted_stops_its_run_in_good_order(
    tmp_path: Path, reaches: Callable[[str, int], None], until: Callable[..., None]
) -> None:
    """The summary is its result."""
    store, folder = tmp_path / "run.zarr", tmp_path / "programs"
    program = start(["train", "mlp", "--store", str(store), "--json", *FLAGS], folder)
    try:
        until((store / "log").exists, "the run has begun")
        reaches(str(store), 10)
        assert program.running
        until(lambda: "version" in program.output(), "its progress is told")
        assert program.interrupt()
        until(lambda: program.returncode is not None, "it has ended")
    finally:
        program.kill()
    assert program.returncode == 0, program.output()
    (found,) = programs(folder)
    result = found.result()
    assert result is not None
    assert (result["outcome"], result["detail"]) == ("stopped", "interrupted at the keyboard")
    assert describe_run(str(store))["outcome"] == "stopped"
