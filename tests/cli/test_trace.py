"""``psplatform trace``: the run times of a run in a file, and back into a simulation."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.jobs.job import Job
from psplatform.replication.stores.store import create_run
from psplatform.simulation.conditions import Conditions
from psplatform.simulation.driver import Simulated
from psplatform.simulation.simulate import simulate
from psplatform.telemetry.log.writer import EventLog

Command = Callable[..., Any]
Json = Callable[[Any], dict[str, Any]]
Refused = Callable[..., str]


def write_run(store: Path, run: str, records: Iterable[dict[str, Any]]) -> str:
    create_run(str(store), {"run": run})
    with EventLog(str(store), 1) as log:
        for record in records:
            log.buffer(record)
    return str(store)


def simulated(policy: str, **options: Any) -> Simulated:
    job = Job(workload="digits", policy=policy, policy_options=options, workers=3, stop=Stop(updates=20))
    conditions = Conditions(compute="uniform:low=0.5,high=1.5;factors:1,1,2", timing_only=True)
    return simulate(job, conditions, keep_records=True)


@pytest.fixture(scope="module")
def full() -> Simulated:
    """Run twenty rounds that wait for all of three workers."""
    return simulated("bsp")


@pytest.fixture
def store(full: Simulated, tmp_path: Path) -> str:
    return write_run(tmp_path / "runs" / "one.zarr", "digits-bsp-1a2b3c", full.records)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_every_gradient_is_a_line_on_standard_output(psplatform: Command, store: str) -> None:
    result = psplatform("trace", store)
    assert result.exit_code == 0, result.output
    found = rows(result.stdout)
    assert [(row["slot"], row["sequence"], row["version"]) for row in found] == [
        (str(slot), str(number), str(number)) for slot in range(3) for number in range(20)
    ]


def test_the_only_store_in_the_folder_of_a_local_url_is_traced(psplatform: Command, store: str) -> None:
    result = psplatform("trace", Path(store).parent.as_uri())
    assert len(rows(result.stdout)) == 60, result.output


def test_a_simulation_of_the_trace_takes_as_long_as_the_run(
    psplatform: Command, store: str, full: Simulated, tmp_path: Path, last_json: Json
) -> None:
    """Round by round, to the last digit: the file is read as it is."""
    file = str(tmp_path / "times.csv")
    assert psplatform("trace", store, "--output", file).exit_code == 0
    words = ("simulate", "digits", "--timing-only", "--workers", "3", "--updates", "20", "--compute", f"trace:{file}")
    assert last_json(psplatform(*words, "--json"))["virtual_seconds"] == full.virtual_seconds


def test_the_closing_words_say_what_is_there_and_what_to_do_with_it(
    psplatform: Command, store: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "times.csv")
    result = psplatform("trace", store, "--output", file)
    assert f"{file}: 60 gradients of 3 workers, " in result.stdout
    assert f"--workers 3 --compute trace:{file}" in result.stdout


def test_scripts_get_an_object(psplatform: Command, store: str, tmp_path: Path, last_json: Json) -> None:
    file = str(tmp_path / "times.csv")
    found = last_json(psplatform("trace", store, "--output", file, "--json"))
    mean = found.pop("seconds_mean")
    expected = {"run": "digits-bsp-1a2b3c", "workers": 3, "gradients": 60, "censored": 0, "file": file}
    assert found == expected
    assert mean == pytest.approx(sum(float(row["seconds"]) for row in rows(Path(file).read_text())) / 60)


def test_gradients_that_were_cut_off_are_counted_apart(psplatform: Command, tmp_path: Path, last_json: Json) -> None:
    records = simulated("cutoff", predictor="static", c=2).records
    store, file = write_run(tmp_path / "one.zarr", "digits-cutoff", records), str(tmp_path / "times.csv")
    found = last_json(psplatform("trace", store, "--output", file, "--json"))
    assert (found["gradients"], found["censored"]) == (40, 19)  # the run was over before the last abort was confirmed
    known = [float(row["seconds"]) for row in rows(Path(file).read_text()) if row["censored"] == "0"]
    assert found["seconds_mean"] == pytest.approx(sum(known) / 40)
    assert "and 19 that were cut off" in psplatform("trace", store, "--output", file).stdout


def test_the_only_store_of_a_folder_is_meant(psplatform: Command, store: str) -> None:
    assert psplatform("trace", str(Path(store).parent)).stdout == psplatform("trace", store).stdout


def test_a_run_that_goes_on_is_traced_as_far_as_it_came(psplatform: Command, full: Simulated, tmp_path: Path) -> None:
    store = write_run(tmp_path / "open.zarr", "digits-bsp-4d5e6f", full.records[:40])
    gradients = sum(record["kind"] == "gradient" for record in full.records[:40])
    assert len(rows(psplatform("trace", store).stdout)) == gradients > 0


def test_what_cannot_be_traced_is_refused(refused: Refused, full: Simulated, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    assert "there is no run in" in refused("trace", str(tmp_path / "nowhere"))
    assert "there is no run in" in refused("trace", str(folder))
    store = write_run(folder / "new.zarr", "digits-bsp-new", full.records[:1])
    assert refused("trace", store) == "the log of run digits-bsp-new holds no gradient yet; wait for its first"
    write_run(folder / "other.zarr", "digits-bsp-other", full.records)
    assert f"{folder} holds 2 stores; name one of them: {store}, " in refused("trace", str(folder))


def test_a_file_of_something_else_is_no_store(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    assert "notes.txt" in refused("trace", str(tmp_path / "notes.txt"))


def test_a_place_for_the_file_is_looked_for_before_the_log_is_read(refused: Refused, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere.zarr")
    missing = str(tmp_path / "none" / "times.csv")
    assert f"there is no folder {tmp_path / 'none'} to write times.csv into; make it" in refused(
        "trace", nowhere, "--output", missing
    )
    assert "is a folder; name a file in it" in refused("trace", nowhere, "--output", str(tmp_path))
    assert "give --output as well" in refused("trace", nowhere, "--json")


def test_a_folder_that_takes_no_file_is_refused_before_anything_is_read(refused: Refused, tmp_path: Path) -> None:
    """Though its permissions allow it: in /proc no file can be made."""
    assert "/proc cannot be written to" in refused("trace", str(tmp_path / "nowhere"), "--output", "/proc/times.csv")


def test_a_file_is_replaced_whole_or_not_at_all(
    psplatform: Command, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "times.csv"
    file.write_text("before")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full_disk:
        full_disk.setattr(Path, "replace", fail)
        result = psplatform("trace", store, "--output", str(file))
    assert result.exit_code == 2
    assert "No space left on device" in result.output
    assert file.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "times.csv"}
    assert psplatform("trace", store, "--output", str(file)).exit_code == 0
    assert len(rows(file.read_text())) == 60


def test_help_says_what_a_censored_gradient_is(psplatform: Command) -> None:
    said = " ".join(psplatform("trace", "--help").output.split())
    assert "censored, 1 for a gradient that was cut off, whose time is only known to be above the seconds given" in said
