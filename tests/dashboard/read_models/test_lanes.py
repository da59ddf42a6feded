"""What each worker did when: the newest minute at hand, and any stretch of the run read from the log again."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from psplatform.dashboard.read_models import reading as module
from psplatform.dashboard.read_models.batches import Clock, batches
from psplatform.dashboard.read_models.lanes import (
    MOST_BARS,
    MOST_KEPT,
    PARTS,
    STATES,
    Lanes,
    RecentLanes,
    Span,
    gradients_of,
    lanes_of,
)
from psplatform.dashboard.read_models.reading import Reading
from psplatform.dashboard.read_models.stretches import Stretch, Stretches
from psplatform.telemetry.log.reader import LogReader
from psplatform.telemetry.log.segments import Position, Record

ALWAYS_S = 1e9

# A log has thousands of records: shrinking it takes longer than a test may hang.  The blob of an example repeats it.
WHOLE = settings(phases=(Phase.explicit, Phase.reuse, Phase.generate), print_blob=True)

Bar = tuple[int, int, float, float]


def _gradient(at: float, slot: int = 0, **seconds: float) -> Record:
    took = {f"{state}_s": seconds.get(state, 0.0) for state in STATES}
    return {"kind": "gradient", "at": at, "slot": slot, "sequence": 0, "label": 0, "loss": 1.0, "norm": 1.0, **took}


def _bars(records: Sequence[Record]) -> tuple[list[list[Bar]], float]:
    """Return for each gradient its four bars (slot, state, begin, end), and the time of the newest record."""
    found, offset, newest_s = [], 0.0, 0.0
    for record in records:
        offset = newest_s if record["kind"] == "run" else offset
        newest_s = max(newest_s, offset + record["at"])
        if record["kind"] == "gradient":
            bars, end = [], offset + record["at"]
            for state in (3, 2, 1, 0):
                begin = end - record[f"{STATES[state]}_s"]
                bars.append((record["slot"], state, begin, end))
                end = begin
            found.append(bars[::-1])
    return found, newest_s


def _most(bars: Sequence[Bar], row: int, begin: float, end: float) -> set[int]:
    """Return the states that take most of a part; none where nothing is known."""
    took = [0.0] * len(STATES)
    for slot, state, first, last in bars:
        if slot == row:
            took[state] += max(0.0, min(end, last) - max(begin, first))
    return {state for state, one in enumerate(took) if one > 0 and one >= max(took) - 1e-4 * (end - begin)}


def _are_lanes(lanes: Lanes, gradients: Sequence[Sequence[Bar]], start_s: float, end_s: float) -> None:
    seen = [bars for bars in gradients if bars[0][2] <= end_s and bars[3][3] >= start_s]
    assert (lanes.start_s, lanes.end_s) == (start_s, end_s)
    assert lanes.slots == tuple(sorted({bars[0][0] for bars in seen}))
    clipped = [(slot, n, max(a, start_s), min(b, end_s)) for bars in seen for slot, n, a, b in bars]
    if len(seen) <= MOST_BARS:
        assert lanes.bars is not None
        for place, state in enumerate(STATES):
            of_state = [(slot, a, b - a) for slot, n, a, b in clipped if n == place and b > a]
            assert list(zip(*(one.tolist() for one in lanes.bars[state]), strict=True)) == of_state
        return
    assert lanes.parts is not None
    width = (end_s - start_s) / PARTS
    for row, slot in enumerate(lanes.slots):
        for part in range(0, PARTS, 37):
            begin = start_s + part * width
            most, found = _most(clipped, slot, begin, begin + width), lanes.parts[row, part]
            assert np.isnan(found) if not most else found in most or len(most) > 1


@settings(WHOLE, max_examples=40)
@given(data=st.data())
def test_lanes_are_those_of_all_gradients_of_the_log(
    data: st.DataObject, any_segments: Any, new_store: Any, opened: Any, write: Any
) -> None:
    """The newest minute and any stretch, over all lives, whichever segment a gradient was announced in."""
    store, segments = new_store(), data.draw(any_segments)
    log = opened(store)
    for segment in segments:
        write(log, segment)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_PLACES", data.draw(st.sampled_from([2, 4, 4096])))
        reading = Reading(store)
        while not reading.refresh(data.draw(st.sampled_from([0.0, ALWAYS_S]))).complete:
            pass
    gradients, newest_s = _bars([record for segment in segments for record in segment])
    _are_lanes(reading.read(lambda models: models.lanes.rows), gradients, max(0.0, newest_s - 60), newest_s)
    places = st.integers(0, int(newest_s) + 2)
    for start_s, end_s in data.draw(
        st.lists(st.tuples(places, places).filter(lambda pair: pair[0] < pair[1]), max_size=3)
    ):
        _are_lanes(reading.lanes(float(start_s), float(end_s)), gradients, float(start_s), float(end_s))


def test_a_straggler_that_announces_long_after_a_stretch_is_in_it(new_store: Any, opened: Any, write: Any) -> None:
    """Segments without a gradient of the stretch come in between, and so does another life of the run."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    for second in range(20):
        write(log, [_gradient(float(second), compute=0.5)])
    write(log, [{"kind": "run", "at": 0.0}, _gradient(0.5)])
    write(log, [_gradient(5.0, slot=1, compute=20.5)])
    while not reading.refresh(0.0).complete:
        pass
    lanes = reading.lanes(3.0, 4.25)
    assert lanes.bars is not None
    assert [one.tolist() for one in lanes.bars["compute"]] == [[0, 1], [3.5, 3.5], [0.5, 0.75]]


def test_a_stretch_is_of_the_log_that_was_refreshed(new_store: Any, opened: Any, write: Any) -> None:
    """What a takeover supersedes is shown until the next refresh, as in all other rows, and not mixed with the new."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    for second in range(4):
        write(log, [_gradient(float(second), compute=0.5)])
    reading.refresh(ALWAYS_S)
    write(opened(store, 2, after=Position(1, 1)), [_gradient(2.5, slot=7, compute=0.25)])
    assert reading.lanes(0.0, 9.0).slots == (0,)
    reading.refresh(ALWAYS_S)
    assert reading.lanes(1.0, 9.0).slots == (7,)


def test_only_the_segments_of_a_stretch_are_read_again(
    new_store: Any, opened: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch of a long run costs as much as of a short one."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    for second in range(40):
        write(log, [_gradient(float(second), compute=0.5)])
        reading.refresh(0.0)
    begun, whole = [], LogReader._segment
    monkeypatch.setattr(LogReader, "_segment", lambda self, place: begun.append(place.number) or whole(self, place))
    reading.lanes(9.75, 11.25)
    assert begun == [11, 12]


def test_a_stretch_is_read_again_only_where_the_log_has_grown_inside_it(
    new_store: Any, opened: Any, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page asks for it every second."""
    store = new_store()
    log, reading = opened(store), Reading(store)
    for second in range(5):
        write(log, [_gradient(float(second), compute=0.5)])
    reading.refresh(ALWAYS_S)
    first = reading.lanes(1.0, 2.25)
    with monkeypatch.context() as patch:
        patch.setattr(LogReader, "_segment", lambda self, place: pytest.fail("the log was read again"))
        assert reading.lanes(1.0, 2.25) is first
    write(log, [_gradient(5.0, slot=7, compute=4.0)])
    reading.refresh(ALWAYS_S)
    assert reading.lanes(1.0, 2.25).slots == (0, 7)
    for end_s in range(2, 20):
        reading.lanes(0.0, float(end_s))
    assert len(reading._selected) == module.MOST_SELECTIONS


@pytest.mark.parametrize("cut", [997, MOST_KEPT * 2])
def test_of_too_many_gradients_the_newest_are_at_hand(cut: int) -> None:
    """However they came, and the lanes begin where all of them are known."""
    total = MOST_KEPT + 1500
    records = [_gradient(n / 4096, slot=n % 2, compute=1 / 4096) for n in range(total)]
    lanes, clock = RecentLanes(), Clock()
    for begin in range(0, total, cut):
        for batch in batches(records[begin : begin + cut], clock):
            clock = batch.clock
            lanes.take(batch)
    assert sum(len(one.at) for one in lanes._kept) == MOST_KEPT
    assert all(len(one.at.base) <= MOST_KEPT for one in lanes._kept if one.at.base is not None)
    rows = lanes.rows
    assert (rows.start_s, rows.end_s) == (1500 / 4096, (total - 1) / 4096)
    assert rows.parts is not None
    assert np.all(rows.parts == STATES.index("compute"))


def test_a_batch_of_more_than_a_minute_leaves_the_newest_minute() -> None:
    """It is at hand in full, although the batch also has older gradients."""
    lanes = RecentLanes()
    [batch] = batches([_gradient(float(second), compute=0.5) for second in range(101)], Clock())
    lanes.take(batch)
    bars = lanes.rows.bars
    assert bars is not None
    assert bars["compute"][1].tolist() == [second - 0.5 for second in range(41, 101)]


def test_nothing_is_known_of_a_part_in_which_no_gradient_was_under_way() -> None:
    """Rounding in the sums over many gradients is not taken for work."""
    random = Random(1)
    records = [
        _gradient(0.1 + n * 0.0007, slot=n % 9, compute=random.uniform(0, 0.01), push=random.uniform(0, 0.001))
        for n in range(MOST_BARS + 100)
    ]
    [batch] = batches([*records, _gradient(10.0, compute=0.3)], Clock())
    parts = lanes_of(gradients_of(batch), 0.0, 10.0).parts
    assert parts is not None
    assert np.all(np.isnan(parts[:, 40:460]))
    assert np.all(parts[:, 6:25] == STATES.index("compute"))


def test_stretches_are_few_and_cover_what_was_added() -> None:
    """Of a longer log each has more segments, evenly; none that a gradient may be in is left out."""
    stretches = Stretches(8)
    for n in range(1000):
        place = Position(1, n), Position(1, n + 1)
        stretches.add(Stretch(*place, Clock(0.0, float(n)), Span(n - 5.0 * (n == 700), n + 0.5)))
        assert len(stretches) <= 8
    found = list(stretches.meeting(-9.0, 2000.0))
    assert [one.after for one in found[1:]] == [one.until for one in found[:-1]]
    assert (found[0].after.number, found[-1].until.number) == (0, 1000)
    assert {one.additions for one in found[:-1]} == {128}
    assert [one.clock.newest_s for one in found] == [one.after.number for one in found]
    assert [one.after.number for one in stretches.meeting(695.75, 695.8)] == [640]
