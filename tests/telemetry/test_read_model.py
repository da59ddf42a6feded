"""Folding a run's records into its picture."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from psplatform.errors import ProtocolError
from psplatform.telemetry.log.renewal import records_to_go_on
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import SERIES_POINTS, Point
from psplatform.telemetry.picture import INCIDENTS, Best, Evaluation, Incident
from psplatform.telemetry.read_model import RunView
from psplatform.telemetry.transfers import MOST_HOSTS
from psplatform.telemetry.words import LONGEST_TEXT

_EXAMPLES: dict[str, Record] = {
    "run": {"run": "r1", "workload": "digits", "policy": "bsp", "policy_parameters": {}, "workers": 2, "shards": 3,
            "seed": 0, "store": "runs/a", "parameters": 10, "samples": 100, "batch_size": 4, "started": 1.7e9},
    "joined": {"slot": 0, "incarnation": 1, "process": "tcp://a:1", "clock": 0},
    "lost": {"slot": 0, "incarnation": 1, "process": "tcp://a:1", "reason": "connection closed"},
    "start": {"slot": 0, "sequence": 0, "version": 0, "clock": 0, "min_clock": 0},
    "gradient": {"slot": 0, "sequence": 0, "label": 0, "loss": 2.0, "norm": 1.0, "compute_s": 0.3, "pull_s": 0.1,
                 "push_s": 0.1, "wait_s": 0.5},
    "dropped": {"slot": 0, "sequence": 0, "label": 0, "version": 1, "reason": "stale", "detail": "label 0"},
    "commit": {"position": 1, "version": 1, "versions": 1, "slots": [0, 1], "sequences": [0, 0], "staleness": [0, 2],
               "loss": 1.5, "rate": 1.0, "duration_s": 0.2, "reason": "all in"},
    "applied": {"position": 1, "version": 1, "visible_s": 0.01},
    "transfer": {"slots": [0], "sequences": [1], "took_s": 1.5, "planned_s": 1.0, "host": "a",
                 "hosts": ["a"]},
    "pull": {"slot": 0, "sequence": 1, "host": "a", "relay": None, "sent": True, "took_s": 0.5, "planned_s": None},
    "servers": {"hosts": ["s"], "bytes": [100.0]},
    "aborted": {"slot": 0, "sequence": 1, "latency_s": 0.02},
    "evaluated": {"version": 1, "loss": 1.25, "accuracy": 0.5},
    "copy": {"shard": 0, "copy": "server-0-2", "process": "tcp://b:1", "event": "in sync", "reason": "caught up"},
    "promoted": {"role": "server", "shard": 0, "epoch": 2, "copy": "server-0-2", "process": "tcp://b:1",
                 "signal": "closed connection", "detected_seconds": 0.01, "promoted_seconds": 0.08,
                 "distance_lost": 0.12, "updates_lost": 3, "bound": 0.5, "unit": "norm"},
    "resumed": {"role": "server", "shard": 0, "epoch": 2, "first_commit_seconds": 0.2},
    "lost positions": {"shard": 0, "epoch": 2, "first": 4, "last": 6},
    "checkpoint": {"number": 1, "version": 1, "event": "complete", "seconds": 0.1, "bytes": 80, "reason": ""},
    "protection": {"shards": [0]},
    "note": {"text": "hello"},
    "finished": {"outcome": "updates", "detail": "1 of 1", "version": 1, "loss": 1.5, "accuracy": 0.5, "seconds": 3.5},
}  # fmt: skip


def _record(kind: str, at: float = 1.0, **changes: object) -> Record:
    return {"kind": kind, "at": at, **_EXAMPLES[kind], **changes}


def _view(*records: Record) -> RunView:
    view = RunView()
    for record in records:
        view.apply(record)
    return view


def test_metrics_are_those_of_the_newest_evaluation_and_the_best_version_is_known() -> None:
    watch = {"metric": "f1", "lower": ["loss"]}
    view = _view(_record("run", watch=watch), _record("evaluated", metrics={"f1": 0.5, "ppl": math.inf}, kept=True))
    view.apply(_record("evaluated", version=2, metrics={"f1": 0.4}))
    assert view.to_summary()["metrics"] == {"f1": 0.4}
    assert view.to_summary()["best"] == {"metric": "f1", "value": 0.5, "version": 1, "kept": True}
    view.apply(_record("evaluated", version=3, metrics={"f1": 0.6}))
    assert view.best == Best("f1", 0.6, 3, kept=False)


def test_a_log_from_before_there_were_metrics_has_a_best_loss() -> None:
    view = _view(_record("run"), _record("evaluated"), _record("evaluated", version=2, loss=2.0))
    assert view.best == Best("loss", 1.25, 1, kept=False)
    assert view.to_summary()["metrics"] == {}


def test_a_run_tells_what_it_is() -> None:
    """The newest description of the run is kept whole."""
    view = _view(_record("run"), _record("run", policy="ssp"))
    assert view.run["policy"] == "ssp"
    assert view.shards == 3
    assert "kind" not in view.run


def test_updates_commits_and_gradients_are_counted_apart() -> None:
    """A version counts an aggregate of m gradients m times; a commit counts once."""
    gradients = [_record("gradient", slot=slot) for slot in (0, 1, 2)]
    view = _view(*gradients, _record("commit", version=2), _record("applied", version=1))
    assert (view.updates, view.commits, view.gradients, view.applied, view.visible) == (2, 1, 3, 2, 1)
    assert (view.workers[1].gradients, view.workers[1].applied) == (1, 1)
    assert (view.workers[2].gradients, view.workers[2].applied) == (1, 0)


def test_a_commit_adds_a_point_to_each_series() -> None:
    """Loss, mean staleness and rate are known by time and version."""
    view = _view(_record("commit", at=2.0, version=7, rate=0.5))
    assert view.loss == 1.5
    assert view.losses.items == (Point(2.0, 7, 1.5),)
    assert view.staleness_series.items == (Point(2.0, 7, 1.0),)
    assert view.rates.items == (Point(2.0, 7, 0.5),)
    assert view.staleness.to_plain() == {"mean": 1.0, "max": 2, "histogram": {0: 1, 2: 1}}


def test_evaluations_keep_the_best_accuracy() -> None:
    """The newest accuracy is not always the best one, and a task may have none."""
    view = _view(
        _record("evaluated", accuracy=0.9), _record("evaluated", accuracy=0.8), _record("evaluated", accuracy=None)
    )
    assert (view.evaluation_loss, view.accuracy, view.best_accuracy) == (1.25, 0.8, 0.9)
    assert view.evaluations.items[0] == Evaluation(1.0, 1, 1.25, 0.9)


def test_dropped_gradients_are_counted_by_reason_and_slot() -> None:
    """The worker whose gradient was dropped knows it as well."""
    view = _view(_record("dropped"), _record("dropped", slot=1, reason="lost"))
    assert view.dropped.to_plain() == {"total": 2, "by_reason": {"lost": 1, "stale": 1}, "by_slot": {0: 1, 1: 1}}
    assert view.workers[1].dropped == 1


def test_time_spent_waiting_is_a_share_of_all_time() -> None:
    """Known for the run and for each worker."""
    view = _view(_record("gradient"), _record("gradient", slot=1, wait_s=0.0))
    assert view.waiting_fraction == pytest.approx(0.5 / 1.5)
    assert view.workers[0].time.waiting_fraction == pytest.approx(0.5)
    assert view.workers[1].time.waiting_fraction == 0.0


def test_a_worker_computes_rests_is_lost_and_is_replaced() -> None:
    """The status of a slot follows its records, and what people should know becomes an incident."""
    view = _view(_record("joined"), _record("start", clock=4, min_clock=2))
    worker = view.workers[0]
    assert (worker.status, worker.process, worker.clock, view.min_clock) == ("computing", "tcp://a:1", 4, 2)
    view.apply(_record("gradient"))
    assert (worker.status, worker.loss) == ("idle", 2.0)
    view.apply(_record("lost", at=5.0))
    assert (worker.status, worker.lost_at) == ("lost", 5.0)
    view.apply(_record("joined", at=6.0, incarnation=2, process="tcp://b:1"))
    assert (worker.status, worker.process, worker.joined_at, worker.lost_at) == ("idle", "tcp://b:1", 6.0, None)
    assert list(view.incidents) == [
        Incident(5.0, "lost", "slot 0 lost tcp://a:1: connection closed"),
        Incident(6.0, "joined", "slot 0 is taken by tcp://b:1"),
    ]


def test_news_of_a_process_that_was_replaced_changes_nothing() -> None:
    """The loss of an earlier incarnation does not make its successor lost."""
    view = _view(_record("joined", incarnation=2), _record("lost", incarnation=1))
    assert view.workers[0].status == "idle"


def test_a_late_gradient_does_not_bring_the_lost_back() -> None:
    """Only joining makes a lost slot live again."""
    view = _view(_record("joined"), _record("start"), _record("lost"), _record("gradient"))
    assert view.workers[0].status == "lost"


def test_an_abort_tells_how_long_it_took() -> None:
    """The worker is idle again, and latencies are tallied."""
    view = _view(_record("start"), _record("aborted"), _record("aborted", latency_s=0.04))
    assert view.workers[0].status == "idle"
    assert view.workers[0].aborted == 2
    assert view.abort_s.to_plain() == {"mean": pytest.approx(0.03), "max": 0.04}


def test_a_finished_run_has_an_outcome_until_it_is_recovered() -> None:
    """A run that describes itself again is on again."""
    view = _view(_record("run"), _record("finished"))
    assert view.outcome is not None
    assert (view.outcome.outcome, view.outcome.seconds, view.seconds) == ("updates", 3.5, 3.5)
    view.apply(_record("run"))
    assert view.outcome is None


def test_a_recovered_run_has_nobody_of_the_life_before() -> None:
    """Slots, versions and time are those of the life that goes on; what was counted and learned stays."""
    before = (_record("joined"), _record("start"), _record("lost", at=8.0), _record("commit", at=9.0, version=75))
    view = _view(_record("run"), *before, _record("evaluated"), _record("run", at=0.0, from_version=60))
    assert (view.workers, view.updates, view.visible, view.seconds) == ({}, 60, 60, 0.0)
    assert (view.commits, view.best_accuracy, len(view.losses), len(view.incidents)) == (1, 0.5, 1, 1)
    view.apply(_record("joined", at=0.1, process="tcp://c:1"))
    assert (view.workers[0].status, view.workers[0].process, len(view.incidents)) == ("idle", "tcp://c:1", 1)


def test_the_rate_of_a_run_that_goes_on_again_is_that_of_its_own_updates() -> None:
    """Over its own seconds; at the end the whole run's updates are told over the whole run's seconds."""
    view = _view(_record("run", at=0.0), _record("joined", at=0.0), _record("commit", at=100.0, version=75))
    view.apply(_record("run", at=0.0, from_version=60))
    assert view.updates_per_second == 0.0
    for record in (_record("joined", at=1.0), _record("commit", at=3.0, version=64, slots=[0])):
        view.apply(record)
    assert view.updates_per_second == 2.0
    view.apply(_record("finished", at=4.0, version=64, seconds=80.0))
    assert view.updates_per_second == 0.8


def test_a_run_decided_by_blocks_may_be_recovered_on_fewer() -> None:
    """Until each of those has a version again, it is where it began."""
    blocks = [_record("commit", block=block, version=9) for block in range(3)]
    view = _view(_record("run"), *blocks, _record("run", shards=2, from_version=5))
    assert (view.updates, view.blocks) == (5, 1)
    view.apply(_record("commit", block=0, version=7))
    view.apply(_record("applied", block=0, version=7))
    assert (view.updates, view.visible) == (5, 5)
    view.apply(_record("commit", block=1, version=6))
    view.apply(_record("applied", block=1, version=6))
    assert (view.updates, view.visible, view.blocks) == (6, 6, 2)


def test_kinds_of_later_versions_are_ignored() -> None:
    """A picture can be folded from a log that tells more than it shows."""
    assert _view({"kind": "rebalanced", "at": 1.0}, {"at": 2.0}) == RunView()


@pytest.mark.parametrize("kind", sorted(set(_EXAMPLES) - {"run"}))
def test_a_known_kind_without_its_fields_is_refused(kind: str) -> None:
    """The error says what is missing, instead of showing a wrong picture."""
    with pytest.raises(ProtocolError, match=f"{kind}.* has no field"):
        _view({"kind": kind, "at": 1.0})


def test_a_long_run_stays_small() -> None:
    """Series and incidents are bounded, totals are exact."""
    view, total = RunView(), 5 * SERIES_POINTS
    for number in range(total):
        view.apply(_record("commit", at=float(number), version=number + 1))
        view.apply(_record("note", at=float(number)))
    assert len(view.losses.items) <= SERIES_POINTS + 1
    assert view.losses.items[-1].version == total
    assert len(view.incidents) == INCIDENTS
    assert view.commits == total


def test_the_same_records_give_the_same_summary() -> None:
    """Folding depends on nothing else."""
    records = [_record(kind, at=float(at)) for at, kind in enumerate(_EXAMPLES)]
    assert json.dumps(_view(*records).to_summary()) == json.dumps(_view(*records).to_summary())


def test_the_summary_is_json_and_says_it_all() -> None:
    """Every number is finite, every key a string, and the main results are at the top."""
    view = _view(*(_record(kind) for kind in _EXAMPLES), _record("commit", version=2, loss=math.nan))
    summary = view.to_summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    expected = {"workload": "digits", "policy": "bsp", "outcome": "updates", "updates": 2, "commits": 2, "gradients": 1}
    assert summary.items() >= expected.items()
    assert (summary["loss"], summary["accuracy"], summary["seconds"]) == (None, 0.5, 3.5)
    assert summary["staleness"]["histogram"] == {"0": 2, "2": 2}
    assert summary["slots"]["0"]["dropped"] == 1
    assert summary["abort_latency_s"] == {"mean": 0.02, "max": 0.02}


def test_the_summary_says_what_planned_transfers_have_led_to_where_there_are_any() -> None:
    commits = [_record("commit", version=1 + number, slots=[0], staleness=[number // 4]) for number in range(20)]
    commits[-1]["staleness"] = [30]
    records = [*commits, _record("dropped", reason="not sent"), _record("dropped", reason="stale")]
    assert "network" not in _view(_record("run"), *records).to_summary()
    network = _view(_record("run", network={"fabric": {"tick_s": 0.1}}), *records).to_summary()["network"]
    delays = [number // 4 for number in range(19)] + [30]
    assert network == {
        "fabric": {"tick_s": 0.1},
        "bytes_in": None,
        "bytes_out": None,
        "interfaces": None,
        "aggregation": None,
        "took_s": {"mean": 0.0, "max": 0.0},
        "planned_s": {"mean": 0.0, "max": 0.0},
        "dropped_at_source": 1,
        "delay": {"mean": sum(delays) / 20, "p95": 4, "max": 30},
    }


def test_the_summary_says_what_came_to_the_servers_and_a_sum_came_once() -> None:
    known = {"fabric": {"tick_s": 0.1}, "gradient_bytes": 100}
    transfers = [
        _record("transfer"),
        _record(
            "transfer", slots=[1, 2, 3], sequences=[1, 4, 1], took_s=2.5, planned_s=2.0, host="b", hosts=["b", "c", "c"]
        ),
        _record("transfer", slots=[0], sequences=[2], took_s=9.0, planned_s=None, host="a"),
    ]
    network = _view(_record("run", network=known), *transfers).to_summary()["network"]
    assert "gradient_bytes" not in network
    assert (network["bytes_in"], network["aggregation"]) == (300, 5 / 3)
    assert (network["took_s"], network["planned_s"]) == ({"mean": 2.0, "max": 2.5}, {"mean": 1.5, "max": 2.0})


KNOWN: Record = {"fabric": {"tick_s": 0.1}, "gradient_bytes": 100}


def _network(*records: Record) -> dict[str, Any]:
    found: dict[str, Any] = _view(_record("run", network=KNOWN), *records).to_summary()["network"]
    return found


def _bytes(into: float, out: float) -> dict[str, float]:
    return {"bytes_in": into, "bytes_out": out}


def test_parameters_that_a_relay_hands_on_have_left_the_servers_once() -> None:
    """What it hands on goes through its own interface, unless it is for a worker of its host."""
    servers = _record("servers", hosts=["s", "t"], bytes=[75.0, 25.0])
    pulls = [_record("pull", host=host, relay="a", sent=host == "b") for host in ("b", "a", "c")]
    network = _network(servers, *pulls, _record("pull", host="c"))
    assert network["bytes_out"] == 200
    assert network["interfaces"] == {
        "a": _bytes(100, 200), "b": _bytes(100, 0), "c": _bytes(200, 0), "s": _bytes(0, 150), "t": _bytes(0, 50)
    }  # fmt: skip


def test_a_sum_crosses_the_interfaces_of_its_gradients_of_its_aggregator_and_of_the_servers() -> None:
    """A gradient of the aggregator's own host crosses none on its way there."""
    servers = _record("servers", hosts=["s", "t"], bytes=[75.0, 25.0])
    summed = _record("transfer", slots=[0, 1, 2, 3], sequences=[1, 1, 1, 1], host="a", hosts=["a", "b", "c", "c"])
    network = _network(servers, summed)
    assert network["bytes_in"] == 100
    assert network["interfaces"] == {
        "a": _bytes(300, 100), "b": _bytes(0, 100), "c": _bytes(0, 200), "s": _bytes(75, 0), "t": _bytes(25, 0)
    }  # fmt: skip


def test_what_stays_on_one_host_has_come_to_the_servers_and_crossed_no_interface() -> None:
    network = _network(_record("servers", hosts=["a"], bytes=[100.0]), _record("transfer"), _record("pull"))
    assert (network["bytes_in"], network["bytes_out"], network["interfaces"]) == (100, 100, {})


def test_interfaces_are_those_of_the_servers_of_the_time() -> None:
    """Those that served before a promotion keep what they had."""
    first, then = (_record("servers", hosts=[host], bytes=[100.0]) for host in "st")
    network = _network(first, _record("transfer"), _record("pull"), then, _record("transfer"), _record("transfer"))
    assert network["interfaces"] == {"a": _bytes(100, 300), "s": _bytes(100, 100), "t": _bytes(200, 0)}


def test_a_log_from_before_pulls_were_logged_is_read() -> None:
    """It does not say where the servers are, who was summed, and what was sent to workers."""
    old = _record("transfer", slots=[0, 1], sequences=[1, 1])
    del old["hosts"]
    network = _network(old)
    assert (network["bytes_in"], network["bytes_out"]) == (100, None)
    assert network["interfaces"] == {"a": _bytes(0, 100), "servers": _bytes(100, 0)}
    assert _network(old, _record("servers"), old)["interfaces"] == {
        "a": _bytes(0, 200), "s": _bytes(100, 0), "servers": _bytes(100, 0)
    }  # fmt: skip
    assert _network(old, _record("servers"))["bytes_out"] == 0, "from then on nothing was sent"


def test_hosts_are_counted_by_name_up_to_a_limit_and_names_are_cut() -> None:
    pulls = [_record("pull", host="x" * 5000), _record("pull", host="")]
    pulls += [_record("pull", host=f"h{number}") for number in range(2 * MOST_HOSTS)]
    interfaces = _network(*pulls)["interfaces"]
    assert len(interfaces) == MOST_HOSTS + 2, "and other ones, and the servers"
    assert interfaces["servers"] == _bytes(0, 100 * len(pulls))
    assert interfaces["other"] == _bytes(100 * (MOST_HOSTS + 2), 0)
    assert max(map(len, interfaces)) == LONGEST_TEXT
    among_others = _network(*pulls, _record("pull", host="h998", relay="h999", sent=False))["interfaces"]
    assert among_others["other"] == _bytes(100 * (MOST_HOSTS + 3), 100)


def test_a_log_that_begins_anew_says_where_the_servers_are() -> None:
    view = _view(_record("run", network=KNOWN), _record("servers"), _record("transfer"))
    assert [one for one in records_to_go_on(view) if one["kind"] == "servers"] == [_record("servers")]
    again = _view(*records_to_go_on(view), _record("transfer"))
    assert again.to_summary()["network"]["interfaces"] == {"a": _bytes(0, 100), "s": _bytes(100, 0)}


def test_the_summary_of_nothing_is_a_summary() -> None:
    """A log without records can be summed up."""
    assert RunView().to_summary()["outcome"] is None
