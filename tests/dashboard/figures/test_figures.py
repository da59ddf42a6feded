"""Every figure: titled axes with units, zoom that stays, colours of the palette, texts as they are, bounded data."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from psplatform.core.reasons import MEANINGS, NOT_SENT
from psplatform.dashboard.figures import (
    convergence,
    decisions,
    delays,
    divergence,
    drops,
    expected,
    failures,
    network,
    workers,
)
from psplatform.dashboard.figures.curves import smoothed
from psplatform.dashboard.figures.style import ALARM, COLOURS, GREY, STATE_COLOURS, colour, dash, faint, label
from psplatform.dashboard.read_models.convergence import ConvergenceRows
from psplatform.dashboard.read_models.counts import Counts, CountsOverTime
from psplatform.dashboard.read_models.decisions import DecisionRows
from psplatform.dashboard.read_models.delays import DelayRows
from psplatform.dashboard.read_models.divergence import DivergenceRows
from psplatform.dashboard.read_models.drops import DropRows
from psplatform.dashboard.read_models.envelopes import Curve, Envelope
from psplatform.dashboard.read_models.expected import Expected
from psplatform.dashboard.read_models.failures import FailoverRow
from psplatform.dashboard.read_models.lanes import MOST_BARS, STATES, Gradients, Lanes, lanes_of
from psplatform.dashboard.read_models.network import Seconds
from psplatform.dashboard.read_models.workers import ComputeTimes

EVIL = "<img src=x onerror=alert(1)><b>b</b>%{x}$x$"
SIZES = {"nothing": 0, "one": 1, "some": 50, "not a number": 50, "very many": 20_000}

MOST_BYTES = 2_000_000
"""Of a figure on its way to the browser, at every refresh."""

UNITS = re.compile(
    r"updates|\[s\]|\[1/s\]|\[versions\]|\[share of 1\]|\[its own unit\]|loss per sample|learning rate|gradients"
    r"|per commit|\(slot\)|Euclidean norm|usual time|\[B\]|^host$|vectors|^$|^&lt;img"
)
"""What an axis counts, or in which unit it is; the last two: names of failovers, and of a policy's own figure."""


def curve(kind: str) -> Curve:
    count = SIZES[kind]
    at = [float(number) for number in range(count)]
    values = [1.0 + number % 7 for number in range(count)] if kind != "not a number" else [math.nan] * count
    envelope = Envelope()
    envelope.extend(at, range(count), values)
    return envelope.curve


def counts(kind: str) -> Counts:
    over_time = CountsOverTime()
    for number in range(SIZES[kind]):
        over_time.add(EVIL if number % 2 else f"reason {number % 200}", [float(number)])
    return over_time.rows


def commits(kind: str) -> Counts:
    over_time = CountsOverTime()
    over_time.add("commits", [float(number) for number in range(SIZES[kind])])
    return over_time.rows


def runs(kind: str) -> dict[str, ConvergenceRows]:
    rows = ConvergenceRows(curve(kind), curve(kind), curve(kind), {EVIL: curve(kind)}, commits(kind))
    return {EVIL: rows, "another": rows}


def many_lanes(kind: str) -> Lanes:
    count = SIZES[kind]
    seconds = np.full((count, len(STATES)), math.nan if kind == "not a number" else 0.01)
    slots = np.arange(count) % 300
    found = Gradients(at=np.arange(count) * 0.01 + 1, slot=slots, seconds=np.nan_to_num(seconds))
    return lanes_of(found, 0.0, count * 0.01 + 1)


def times(kind: str) -> tuple[ComputeTimes, ...]:
    number = math.nan if kind == "not a number" else 0.1
    quantiles = (number,) * 5
    return tuple(ComputeTimes(slot, 9, number, quantiles, number, 1.0 + slot % 3) for slot in range(SIZES[kind]))


def dropped(kind: str) -> DropRows:
    by_worker = {slot: {EVIL: 1, "stale": slot} for slot in range(SIZES[kind])}
    return DropRows(counts(kind), by_worker, ())


def unsent(kind: str) -> Counts:
    over_time = CountsOverTime()
    over_time.add(NOT_SENT, [float(number) for number in range(SIZES[kind])])
    over_time.add(EVIL, [0.0, 1.0])
    return over_time.rows


def hosts(kind: str) -> dict[str, dict[str, float]]:
    names = (f"{EVIL} {number}" for number in range(min(66, SIZES[kind])))
    return {name: {"bytes_in": 1e9, "bytes_out": float(number)} for number, name in enumerate(names)}


def diverged(kind: str) -> DivergenceRows:
    shards = {shard: curve(kind) for shard in range(3 if SIZES[kind] else 0)}
    return DivergenceRows(curve(kind), curve(kind), shards, shards, ())


def decided(kind: str) -> DecisionRows:
    return DecisionRows(curve(kind), curve(kind), {EVIL: curve(kind)}, ())


def failovers(kind: str) -> list[FailoverRow]:
    known = None if kind == "not a number" else 4.0
    return [
        FailoverRow("server", number, 1.0, 2.0, 3.0 + number, known, known, EVIL, EVIL) for number in range(SIZES[kind])
    ]


def simulated(kind: str) -> list[Expected]:
    loss = math.nan if kind == "not a number" else 0.5
    points = tuple((float(number), number, loss) for number in range(min(500, SIZES[kind])))
    return [Expected(EVIL, 1.0, None, 3, 0.5, 2, 0.1, 0.2, None, None, points)] if SIZES[kind] else []


def histogram(kind: str) -> dict[int, int]:
    return {number: number + 1 for number in range(min(1024, SIZES[kind]))}


FIGURES: dict[str, Callable[[str], go.Figure]] = {
    "losses": lambda kind: convergence.losses(runs(kind), "updates", 0.5),
    "losses over seconds": lambda kind: convergence.losses(runs(kind), "seconds"),
    "accuracies": lambda kind: convergence.accuracies(runs(kind), "updates"),
    "metrics": lambda kind: convergence.metrics(runs(kind), "updates"),
    "speed": lambda kind: convergence.speed(runs(kind)),
    "staleness": lambda kind: delays.histogram(histogram(kind), 4),
    "staleness without a bound": lambda kind: delays.histogram(histogram(kind), None),
    "staleness over time": lambda kind: delays.over_time(DelayRows(curve(kind)), "seconds", 3),
    "lanes": lambda kind: workers.lanes(many_lanes(kind)),
    "compute times": lambda kind: workers.compute_times(times(kind)),
    "scores": lambda kind: workers.scores(times(kind)),
    "drops over time": lambda kind: drops.over_time(dropped(kind)),
    "drops by worker": lambda kind: drops.by_worker(dropped(kind)),
    "interfaces": lambda kind: network.interfaces(hosts(kind), {f"{EVIL} 3"}),
    "gradients per vector": lambda kind: network.sizes(dict.fromkeys(range(1, min(66, SIZES[kind]) + 1), 7)),
    "seconds of transfers": lambda kind: network.seconds(Seconds(curve(kind), curve(kind)), "gradients"),
    "dropped at the source": lambda kind: network.dropped_at_source(unsent(kind)),
    "divergence": lambda kind: divergence.whole_model(diverged(kind), "updates", 0.5, "norm"),
    "divergence in updates": lambda kind: divergence.whole_model(diverged(kind), "updates", 8, "updates"),
    "divergence by shard": lambda kind: divergence.by_shard(diverged(kind), "seconds", 0.5, "norm", 3),
    "gradients per commit": lambda kind: decisions.gradients_per_commit(decided(kind), "updates"),
    "learning rate": lambda kind: decisions.learning_rate(decided(kind), "updates", 0.1),
    "factor": lambda kind: decisions.learning_rate(decided(kind), "updates", None),
    "figure of a policy": lambda kind: decisions.figure_of_policy(curve(kind), EVIL, "updates"),
    "failovers": lambda kind: failures.timeline(failovers(kind)),
    "simulated losses": lambda kind: expected.losses(simulated(kind)),
}


def strings(plain: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts of a figure, each with the name of what it is."""
    for name, one in plain.items() if isinstance(plain, dict) else ():
        if isinstance(one, str):
            yield name, one
        for item in one if isinstance(one, list) else [one]:
            if isinstance(item, str):
                yield name, item
            elif name != "template":
                yield from strings(item)


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_any_rows(name: str, kind: str) -> None:
    figure = FIGURES[name](kind)
    text = figure.to_json(remove_uids=False)
    plain = json.loads(text)
    layout = plain["layout"]
    assert layout["uirevision"] == "kept"
    assert layout["xaxis"]["uirevision"] == layout["xaxis"]["title"]["text"]
    uids = [one["uid"] for one in plain["data"]]
    assert len(set(uids)) == len(uids)
    assert all(re.fullmatch("[a-z][a-z0-9-]*", one) for one in uids), "plotly.js makes class names of them"
    for axis in ("xaxis", "yaxis"):
        assert UNITS.search(layout[axis]["title"]["text"]), layout[axis]["title"]
    assert layout["xaxis"]["title"]["text"]
    assert len(text) < MOST_BYTES + len(json.dumps(layout.get("template")))
    allowed = {*COLOURS, ALARM, GREY, *STATE_COLOURS.values(), *map(faint, COLOURS)}
    for what, one in strings(plain):
        if what in ("color", "fillcolor"):
            assert one in allowed, (what, one)
        assert not re.search(r"<(img|b)\b", one), (what, one)
        if "img" in one:
            assert "%{x}$" not in one, (what, one)
    said = [one["text"] for one in layout.get("annotations", ()) if one.get("font", {}).get("size") == 14]
    assert len(said) <= 1
    assert bool(said) or kind != "nothing", "a picture of nothing says so"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_something_draws_it(name: str) -> None:
    figure = FIGURES[name]("some")
    assert not [one for one in figure.layout.annotations if (one.font.size or 0) == 14]
    assert any(len(one["x"]) > 1 for one in figure.data if one["x"] is not None)


def test_a_curve_is_drawn_along_updates_or_seconds() -> None:
    found = Curve(*(np.array(one, dtype=float) for one in ([0.5, 1.5], [3, 9], [1, 2], [1, 2], [1, 2])))
    rows = {"a": ConvergenceRows(found, curve("nothing"), curve("nothing"), {}, commits("nothing"))}
    (training,) = (one for one in convergence.losses(rows, "updates").data if one.name == "training")
    assert (list(training.x), list(training.y)) == ([3, 9], [1, 2])
    (training,) = (one for one in convergence.losses(rows, "seconds").data if one.name == "training")
    assert list(training.x) == [0.5, 1.5]
    assert convergence.losses(rows, "updates").layout.yaxis.type == "log"


def test_the_band_shows_the_extremes_that_a_point_stands_for() -> None:
    found = Curve(*(np.array(one, dtype=float) for one in ([1, 2], [1, 2], [0.5, 1], [1, 2], [4, 9])))
    high, low, mean = delays.over_time(DelayRows(found), "updates", None).data
    assert [list(one.y) for one in (high, low, mean)] == [[4, 9], [0.5, 1], [1, 2]]
    assert low.fill == "tonexty"


def test_smoothing_is_unbiased_and_leaves_gaps_out() -> None:
    values = np.array([2.0, math.nan, 4.0])
    assert smoothed(values, 0.0) is values
    found = smoothed(values, 0.5)
    assert found[:2].tolist() == [2.0, 2.0]
    assert found[2] == pytest.approx((0.25 * 2 + 0.5 * 4) / 0.75)
    assert np.isnan(smoothed(np.array([math.nan]), 0.5)).all()


def test_a_distances_bound_is_divided_among_shards_and_updates_are_not() -> None:
    (line,) = divergence.by_shard(diverged("some"), "updates", 1.0, "norm", 4).layout.shapes
    assert line.y0 == 0.5
    (line,) = divergence.by_shard(diverged("some"), "updates", 8.0, "updates", 4).layout.shapes
    assert line.y0 == 8.0


def test_the_bound_of_the_staleness_stands_beside_its_last_bar() -> None:
    figure = delays.histogram({0: 5, 2: 1}, 2)
    assert figure.layout.shapes[0].x0 == 2.5
    assert (list(figure.data[0].x), list(figure.data[0].y)) == ([0, 2], [5, 1])


def test_phases_of_a_failover_add_up_to_its_bar() -> None:
    row = FailoverRow("server", 0, 1.0, 1.5, 2.5, 3.0, 7.0, "", "")
    assert failures.phases(row) == [0.5, 1.0, 0.5, 4.0]
    assert [one.x[0] for one in failures.timeline([row]).data] == [0.5, 1.0, 0.5, 4.0]
    open_row = FailoverRow("coordinator", -1, 1.0, 1.5, 2.5, None, None, "", "")
    assert failures.phases(open_row) == [0.5, 1.0, None, None]
    assert failures.name_of(open_row) == "coordinator at 1.5 s"


def test_the_busiest_interface_comes_first_and_servers_are_named() -> None:
    found = {"a": (1.0, 9.0), "b": (2.0, 2.0), "s": (8.0, 30.0), "c": (9.0, 1.0)}
    bytes_of = {host: {"bytes_in": into, "bytes_out": out} for host, (into, out) in found.items()}
    into, out = network.interfaces(bytes_of, {"s"}).data
    assert into.x == out.x == ("s (server)", "a", "c", "b")
    assert (into.y, out.y) == ((8.0, 1.0, 9.0, 2.0), (30.0, 9.0, 1.0, 2.0))


def test_vectors_of_many_gradients_are_named_by_their_bin() -> None:
    (bars,) = network.sizes({1: 5, 63: 1, 64: 2, 128: 3}).data
    assert (bars.x, bars.y) == (("1", "63", "64–127", "128–255"), (5, 1, 2, 3))


def test_of_what_was_dropped_only_what_was_not_sent_is_dropped_at_the_source() -> None:
    (bars,) = network.dropped_at_source(unsent("some")).data
    assert sum(bars.y) * unsent("some").width_s == pytest.approx(50, rel=0.2)
    assert tuple(bars.x) == tuple(unsent("some").middles_s)


def test_of_many_workers_the_slowest_are_drawn() -> None:
    rows = [ComputeTimes(slot, 1, 0.1, (0.1,) * 5, 0.1, 9.0 if slot >= 200 else 1.0) for slot in range(264)]
    assert workers.slowest(rows) == rows[200:]
    assert len(workers.scores(rows).data[0].x) == workers.MOST_WORKERS


def test_of_many_gradients_parts_are_drawn_instead_of_bars() -> None:
    (count,) = [kind for kind in SIZES if SIZES[kind] > MOST_BARS]
    assert FIGURES["lanes"](count).data[0].type == "heatmap"
    assert {one.type for one in FIGURES["lanes"]("some").data} == {"bar"}


def test_colours_repeat_with_another_dash() -> None:
    looks = {(colour(number), dash(number)) for number in range(len(COLOURS) * 4)}
    assert len(looks) == len(COLOURS) * 4


@pytest.mark.parametrize(
    ("text", "shown"),
    [("<b>", "&lt;b&gt;"), ("%{x}", "% {x}"), ("a & b", "a &amp; b"), ("x" * 500, "x" * 79 + "…"), ("bsp", "bsp")],
)
def test_labels_mean_nothing_to_plotly(text: str, shown: str) -> None:
    assert label(text) == shown


def test_a_reason_keeps_its_colour_when_another_appears() -> None:
    def colours(*reasons: str) -> dict[str, str]:
        by_worker = {0: dict.fromkeys(reasons, 1)}
        rows = DropRows(over_time=counts("nothing"), by_worker=by_worker, newest=())
        return {bar.name: bar.marker.color for bar in drops.by_worker(rows).data}

    def pattern(*reasons: str) -> str:
        rows = DropRows(counts("nothing"), {0: dict.fromkeys(reasons, 1)}, ())
        return next(bar.marker.pattern.shape for bar in drops.by_worker(rows).data if bar.name == "my own")

    before, after = colours("stale", "my own"), colours("aborted", "a new own", "stale", "my own", "lost")
    assert {name: after[name] for name in before} == before
    assert len({after[name] for name in ("aborted", "stale", "lost")}) == 3
    assert after["my own"] == GREY
    assert pattern("my own") == pattern("a new own", "my own")


def test_a_reason_of_a_policys_own_looks_like_none_that_is_known() -> None:
    by_worker = {0: dict.fromkeys([*MEANINGS, "my own"], 1)}
    bars = {bar.name: bar.marker.color for bar in drops.by_worker(DropRows(counts("nothing"), by_worker, ())).data}
    assert bars.pop("my own") not in bars.values()


def test_a_trace_is_the_same_when_others_come_or_go() -> None:
    """The legend's choices are kept by it: the band appears once a point stands for several values."""

    def uids(count: int) -> dict[str, str]:
        envelope = Envelope()
        envelope.extend(list(map(float, range(count))), range(count), [1.0 + number % 7 for number in range(count)])
        rows = ConvergenceRows(envelope.curve, envelope.curve, envelope.curve, {}, commits("nothing"))
        return {one.name: one.uid for one in convergence.losses({"a": rows}, "updates").data}

    before, after = uids(9), uids(20_000)
    assert before == after
    assert {"training", "training highest", "training lowest", "held-out"} <= before.keys()

    def drop_uids(*reasons: str) -> dict[str, str]:
        figure = drops.by_worker(DropRows(counts("nothing"), {0: dict.fromkeys(reasons, 1)}, ()))
        return {one.name: one.uid for one in figure.data}

    assert drop_uids("aborted", "lost", "stale")["stale"] == drop_uids("stale")["stale"]


def test_lanes_have_no_range_that_moves_with_the_run() -> None:
    """It would undo the visitor's zoom at each refresh."""
    axis = FIGURES["lanes"]("some").layout.xaxis
    assert axis.range is None
    assert axis.autorangeoptions.include == (axis.autorangeoptions.clipmin, axis.autorangeoptions.clipmax)
