"""Folding many records at once gives the picture that folding them one by one does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from psplatform.errors import ProtocolError
from psplatform.telemetry.log.grouped import Grouped
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import DROP_REASONS, SERIES_POINTS, Series
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.transfers import MOST_HOSTS

_SECONDS = st.floats(0, 1e3)
_SLOT = st.integers(0, 1)
_BLOCK: Any = {"block": st.integers(0, 2)}


def _records_of(kind: str, fields: dict[str, Any], optional: dict[str, Any] | None = None) -> st.SearchStrategy[Record]:
    return st.fixed_dictionaries({"kind": st.just(kind), "at": _SECONDS, **fields}, optional=optional or {})


_SLOTS = st.lists(_SLOT, max_size=3)
_OF_PROCESS: dict[str, Any] = {
    "slot": _SLOT,
    "incarnation": st.integers(1, 3),
    "process": st.just("tcp://a:1"),
    "reason": st.just("closed"),
    "clock": st.integers(0, 9),
}
_LAGS: dict[str, Any] = {
    "divergence": st.floats(0, 9),
    "lag": st.integers(0, 9),
    "to_replica_bytes": st.integers(0, 99),
    **_BLOCK,
}
_HOST = st.integers(0, 99).map("h{}".format) | st.sampled_from(["", "h1", "h2"])
_PLANNED_S = st.none() | _SECONDS
_NETWORK: Any = {"network": st.just({"fabric": {}, "gradient_bytes": 100.1})}
_ANY: Sequence[st.SearchStrategy[Record]] = (
    _records_of("run", {"shards": st.just(3), "from_version": st.integers(0, 9)}, _NETWORK),
    _records_of("transfer", {"slots": _SLOTS, "took_s": _SECONDS, "planned_s": _PLANNED_S, "host": _HOST},
                {"hosts": st.lists(_HOST, max_size=3)}),
    _records_of("pull", {"host": _HOST, "relay": st.none() | _HOST, "sent": st.booleans(), "took_s": _SECONDS}),
    _records_of("servers", {"hosts": st.lists(_HOST, max_size=2), "bytes": st.lists(_SECONDS, max_size=2)}),
    *(_records_of(kind, _OF_PROCESS) for kind in ("joined", "left", "lost")),
    _records_of("start", {"slot": _SLOT, **{name: st.integers(0, 9) for name in ("sequence", "version", "clock")},
                          "min_clock": st.integers(0, 9)}),
    _records_of("gradient", {"slot": _SLOT, "loss": st.floats(), "compute_s": _SECONDS, "pull_s": _SECONDS,
                             "push_s": _SECONDS, "wait_s": _SECONDS | st.just(0)}),
    _records_of("aborted", {"slot": _SLOT, "latency_s": _SECONDS}),
    _records_of("dropped", {"slot": _SLOT, "reason": st.integers(0, 99).map("stale by {}".format)}),
    _records_of("commit", {"version": st.integers(0, 99), "loss": st.floats(), "rate": _SECONDS, "slots": _SLOTS,
                           "staleness": st.lists(st.integers(0, 4000), max_size=3), "duration_s": _SECONDS}, _BLOCK),
    _records_of("applied", {"version": st.integers(0, 99), "visible_s": _SECONDS}, _LAGS),
    _records_of("evaluated", {"version": st.integers(0, 99), "loss": st.none(), "accuracy": st.floats(0, 1)}),
    _records_of("note", {"text": st.just("hello")}),
    _records_of("finished", {"outcome": st.just("updates"), "detail": st.just(""), "version": st.just(1),
                             "loss": st.none(), "accuracy": st.none(), "seconds": _SECONDS}),
    _records_of("of a later version", {}),
)  # fmt: skip


def _in_pieces(records: Sequence[Record], cuts: Sequence[int]) -> RunView:
    view = RunView()
    edges = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    for begin, end in pairwise(edges):
        view.take(Grouped(records[begin:end]))
    return view


def _one_by_one(records: Sequence[Record]) -> RunView:
    view = RunView()
    for record in records:
        view.apply(record)
    return view


@settings(max_examples=200, phases=(Phase.explicit, Phase.reuse, Phase.generate), print_blob=True)
@given(st.lists(st.one_of(*_ANY), min_size=20, max_size=40), st.lists(st.integers(0, 99), max_size=2))
def test_pieces_of_any_size_give_the_same_picture(records: list[Record], cuts: list[int]) -> None:
    """To the last bit: sums are made in the same order."""
    one, other = _one_by_one(records), _in_pieces(records, cuts)
    assert repr(one.to_summary()) == repr(other.to_summary())
    # Not a comparison: a loss may be NaN, which equals nothing.
    assert _shown(one) == _shown(other)


def _shown(view: RunView) -> str:
    """Return all of a picture; of its counts by slot, the order does not matter."""
    view.workers = dict(sorted(view.workers.items()))
    for counts in (view.dropped.by_slot, view.staleness.histogram):
        ordered = sorted(counts.items())
        counts.clear()
        counts.update(dict(ordered))
    return repr(view)


def test_series_are_thinned_alike() -> None:
    """However many items come at once, and however long the series is already."""
    for size in (1, 7, 1000, 5 * SERIES_POINTS):
        one, other = Series[int](), Series[int]()
        for begin in range(0, 5 * SERIES_POINTS, size):
            items = range(begin, min(begin + size, 5 * SERIES_POINTS))
            for item in items:
                one.append(item)
            other.extend(len(items), items.__getitem__)
            assert one == other


def test_the_same_reasons_find_room() -> None:
    """Which reasons are counted by themselves depends on their order, not on how they came."""
    dropped = [{"kind": "dropped", "at": 0.0, "slot": 0, "reason": f"r{n % 90}"} for n in range(4 * DROP_REASONS)]
    assert _in_pieces(dropped, [3]).dropped == _one_by_one(dropped).dropped


def test_the_same_hosts_find_room() -> None:
    """Whether they are those of gradients or of parameters."""
    hosts = [f"h{n * 7 % (3 * MOST_HOSTS)}" for n in range(4 * MOST_HOSTS)]
    transfers = [{"kind": "transfer", "at": 0.0, "slots": [0], "took_s": 1.0, "planned_s": None, "host": host,
                  "hosts": [host, "x"]} for host in hosts[::2]]  # fmt: skip
    pulls = [{"kind": "pull", "at": 0.0, "host": host, "relay": "y", "sent": True} for host in hosts[1::2]]
    records = [one for both in zip(transfers, pulls, strict=True) for one in both]
    assert repr(_in_pieces(records, [3]).transfers) == repr(_one_by_one(records).transfers)


_EXAMPLES: dict[str, Record] = {
    "start": {"slot": 0, "sequence": 0, "version": 0, "clock": 0, "min_clock": 0},
    "gradient": {"slot": 0, "loss": 2.0, "compute_s": 0.3, "pull_s": 0.1, "push_s": 0.1, "wait_s": 0.5},
    "aborted": {"slot": 0, "latency_s": 0.02},
    "dropped": {"slot": 0, "reason": "stale"},
    "commit": {"version": 1, "slots": [0], "staleness": [0], "loss": 1.5, "rate": 1.0, "duration_s": 0.2},
    "applied": {"version": 1, "visible_s": 0.01},
    "transfer": {"slots": [0], "took_s": 1.5, "planned_s": 1.0, "host": "a"},
    "pull": {"host": "a", "relay": None, "sent": True},
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, of in _EXAMPLES.items() for name in ("at", *of)])
def test_a_field_that_lacks_is_named(kind: str, name: str) -> None:
    """In the same words as if the record had come alone."""
    whole = {"kind": kind, "at": 0.0, **_EXAMPLES[kind]}
    poor = {key: value for key, value in whole.items() if key != name}
    with pytest.raises(ProtocolError) as alone:
        RunView().apply(poor)
    with pytest.raises(ProtocolError) as among:
        RunView().take(Grouped([whole, poor, whole]))
    assert str(among.value) == str(alone.value)
