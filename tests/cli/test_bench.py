"""``psplatform bench``: what it measures, as an object or a table.  Here with sizes of no consequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import Result

from psplatform.bench import simulator
from psplatform.bench.dashboard import pages
from psplatform.bench.papers import dbw, fabric_tables, psp, zipline
from psplatform.bench.papers.fabric import Figures, Played
from psplatform.bench.simulator import Case

Command = Callable[..., Result]

CASES = (
    Case("asp", 2, 20),
    Case("bsp", 3, 4),
    Case("cutoff", 4, 30, {"predictor": "generative"}, fit_rounds=40, fit_steps=2),
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure small sizes only."""
    monkeypatch.setattr(simulator, "CASES", CASES)
    sizes = {name: {(4, 3): 1e-6} for name in zipline.ALGORITHMS}
    monkeypatch.setattr(zipline, "PUBLISHED_SECONDS", sizes)
    monkeypatch.setattr(zipline, "REPEATS", 1)


def test_zipline_says_how_long_each_search_took_and_whether_it_is_exact(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]]
) -> None:
    rows = last_json(psplatform("bench", "zipline", "--json"))["results"]
    assert [one["algorithm"] for one in rows] == ["zipline", "gridscan", "fullgridscan"]
    for one in rows:
        assert (one["workers"], one["lookahead"]) == (4, 3)
        assert one["seconds"] > 0
        assert isinstance(one["exact"], bool)
    assert rows[0]["exact"]


def test_simulator_says_how_many_events_a_second_holds(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]]
) -> None:
    rows = last_json(psplatform("bench", "simulator", "--json"))["results"]
    assert [(one["policy"], one["workers"]) for one in rows] == [("asp", 2), ("bsp", 3), ("cutoff", 4)]
    for one in rows:
        assert one["events"] > one["workers"]
        assert one["events_per_second"] == pytest.approx(one["events"] / one["seconds"])
    assert "fit_seconds" not in rows[0]
    assert rows[2]["fit_seconds"] > 0
    assert rows[2]["note"] == "30 predictions"


def test_scheduler_says_what_a_plan_costs_beside_the_published_figures(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]]
) -> None:
    rows = last_json(psplatform("bench", "scheduler", "--updates", "10", "--updates", "30", "--json"))["results"]
    assert [(one["updates"], one["rates"], one["paper_ms"]) for one in rows] == [
        (count, rates, paper_ms) for rates in ("equal", "N2", "N3") for count, paper_ms in ((10, 5.0), (30, None))
    ]
    for one in rows:
        assert 0 < one["cpu_ms"] <= one["cpu_ms_max"]
        assert 0 <= one["dropped"] < 1
        assert one["aggregation"] >= 1
        assert (one["growth"] is None) == (one["updates"] == 10)


def test_fabric_says_what_each_system_takes_beside_the_ring(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]]
) -> None:
    short = "bench", "fabric", "--seconds", "10", "--seeds", "1", "--part", "results"
    rows = last_json(psplatform(*short, "--json"))["results"]
    assert len({(one["compute"], one["network"], one["system"]) for one in rows}) == len(rows) == 9 * 10
    assert all(one["seconds_per_30"] > 0 for one in rows)
    refused = psplatform("bench", "fabric", "--seconds", "1")
    assert refused.exit_code == 2
    assert "in the range" in refused.output


def test_fabric_shows_the_published_tables_with_what_they_rest_on(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fabric_tables._Runs, "of", lambda *_: [Played(Figures(2.0, 1.0), Figures(2.0, 1.0))])
    every = last_json(psplatform("bench", "fabric", "--json"))
    assert list(every) == ["results", "assumptions", "table2", "dropped", "lag"]
    assert {"compute": "C2", "network": "N3", "ours": 1.0, "paper": 2.32}.items() <= every["table2"][5].items()
    text = psplatform("bench", "fabric", "--part", "lag", "--part", "table2").stdout
    assert text.index("assumptions: {") < text.index("table2:\n") < text.index("lag:\n")
    assert "compute_in_transfers" in text[text.index("lag:") :]
    assert "system" not in text


def test_every_row_is_reported_as_soon_as_it_is_known() -> None:
    told: list[dict[str, Any]] = []
    assert simulator.measure(told.append) == told
    assert len(told) == len(CASES)


def test_a_measurement_simulates_the_same_each_time() -> None:
    first, again = ([one["events"] for one in simulator.measure()] for _ in range(2))
    assert first == again


@pytest.mark.parametrize("what", ["zipline", "simulator"])
def test_people_get_a_table(psplatform: Command, what: str) -> None:
    result = psplatform("bench", what)
    assert result.exit_code == 0, result.output
    headings, *rows = [line for line in result.stdout.splitlines() if line.strip()]
    assert "workers" in headings
    assert len(rows) == 3
    assert "…" not in result.stdout


WIDE = [{f"measured_{number}": f"{number}.0123456789" for number in range(20)}]


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure more columns than a terminal has room for."""
    monkeypatch.setattr(simulator, "measure", lambda report: WIDE)


@pytest.mark.usefixtures("wide")
def test_a_table_in_a_pipe_has_a_line_for_each_row_however_long(psplatform: Command) -> None:
    headings, row = psplatform("bench", "simulator").stdout.splitlines()
    assert headings.split() == list(WIDE[0])
    assert row.split() == list(WIDE[0].values())


@pytest.mark.usefixtures("wide")
def test_a_terminal_that_is_too_narrow_shows_whole_cells(psplatform: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # by which rich takes the output for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    lines = [click.unstyle(line) for line in psplatform("bench", "simulator").stdout.splitlines()]
    assert len(lines) > 2
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    shown = Counter("".join(lines).replace(" ", ""))
    assert shown == Counter("".join([*WIDE[0], *WIDE[0].values()]))


def test_dbw_is_compared_with_every_fixed_number_on_the_workload_and_the_seeds_that_are_asked_for(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def run(workload: str, alpha: float, seed: int, policy: str, k: int | None = None) -> dbw.Outcome:
        asked.append((workload, seed))
        return dbw.Outcome(seconds=10.0 * (k or 2), reached=True, mean_k=k or 2)

    monkeypatch.setattr(dbw, "run", run)
    rows = last_json(psplatform("bench", "dbw", "--workload", "digits", "--seeds", "2", "--json"))["results"]
    assert set(asked) == {("digits", 1), ("digits", 2)}
    per_alpha = [(one["policy"], one["k"]) for one in rows if one["alpha"] == 1.0]
    assert per_alpha == [("backup", k) for k in (1, 4, 8, 12, 16)] + [("dbw", None), ("b-dbw", None)]
    assert {one["ratio_to_best_static"] for one in rows if one["policy"] == "dbw"} == {0.5}


def test_psp_compares_its_settings_under_each_kind_of_delays(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psp, "run", lambda setting, delays, iterations: (float(setting.push), iterations))
    rows = last_json(psplatform("bench", "psp", "--json"))["results"]
    assert {one["delays"] for one in rows} == {"none", "all servers", "one server"}
    assert [one["ratio_to_sync"] for one in rows[:4]] == [1.0, 28 / 32, 28 / 32, 20 / 32]


def test_dashboard_is_measured_at_the_sizes_that_are_asked_for_and_shown_beside_its_targets(
    psplatform: Command, last_json: Callable[[Result], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def measure(report: object, **sizes: Any) -> dict[str, Any]:
        asked.append(sizes)
        return {"rows": [{"measure": "open_seconds", "value": 2.5, "target": 3.0}], "open_seconds": 2.5}

    monkeypatch.setattr(pages, "measure", measure)
    given = ["--commits", "300", "--minutes", "10", "--pairs", "3", "--gradient-ms", "20"]
    assert last_json(psplatform("bench", "dashboard", *given, "--json"))["open_seconds"] == 2.5
    usual = {"workers": 64, "seconds": 60.0, "train_seconds": 3.0}
    assert asked == [{**usual, "commits": 300, "minutes": 10.0, "pairs": 3, "gradient_s": 0.02}]
    shown = psplatform("bench", "dashboard").stdout.splitlines()
    assert shown[0].split() == ["measure", "value", "target"]
    assert shown[1].split() == ["open_seconds", "2.5", "3"]
