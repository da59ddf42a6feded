"""What a run's picture tells about copies, failovers and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from psplatform.jobs.replication import Bounded, Chain, NoReplication, Replication
from psplatform.telemetry.checkpoints import Checkpoint
from psplatform.telemetry.log.segments import Record
from psplatform.telemetry.measures import SERIES_POINTS, Point
from psplatform.telemetry.protection import COPIES, FAILOVERS, LOSSES, LostPositions
from psplatform.telemetry.read_model import RunView

MakeRecord = Callable[..., Record]

CLOSED = "shard 0: server lost (closed connection), replica promoted in 0.08 s"


def _run(replication: Replication) -> Record:
    return {"kind": "run", "at": 0.0, "replication": replication.to_plain(), "checkpoints": {"every_updates": 5}}


def _applied(version: int, at: float = 1.0, **more: Any) -> Record:
    return {"kind": "applied", "at": at, "position": version, "version": version, "visible_s": 0.01, **more}


def _copy(event: str, *, copy: str = "server-0-2", shard: int = 0, at: float = 1.0, reason: str = "") -> Record:
    place = {"shard": shard, "copy": copy, "process": "tcp://b:1"}
    return {"kind": "copy", "at": at, **place, "event": event, "reason": reason}


def _checkpoint(number: int, event: str = "complete", reason: str = "") -> Record:
    amounts = {"version": 10 * number, "seconds": 0.5, "bytes": 800}
    return {"kind": "checkpoint", "at": float(number), "number": number, "event": event, "reason": reason, **amounts}


def _view(*records: Record) -> RunView:
    view = RunView()
    for record in records:
        view.apply(record)
    return view


def _texts(view: RunView) -> list[str]:
    return [incident.text for incident in view.incidents]


def test_divergence_and_lag_are_known_at_each_visible_version() -> None:
    view = _view(
        _applied(1, divergence=0.2, lag=1, to_replica_bytes=80), _applied(2, at=1.5, divergence=0.1, lag=3), _applied(3)
    )
    assert view.protection.divergences.items == (Point(1.0, 1, 0.2), Point(1.5, 2, 0.1))
    assert view.protection.lags.items == (Point(1.0, 1, 1), Point(1.5, 2, 3))
    assert (view.protection.max_divergence, view.protection.max_lag, view.protection.to_replica_bytes) == (0.2, 3, 80)
    assert view.visible == 3


@pytest.mark.parametrize(
    ("replication", "told"),
    [
        (Bounded(max_divergence=0.5), {"max": 0.2, "bound": 0.5, "unit": "norm"}),
        (Bounded(), {"max": 3, "bound": 8, "unit": "updates"}),
        (Chain(), {"max": 3, "bound": 0, "unit": "updates"}),
        (NoReplication(), {"max": None, "bound": None, "unit": None}),
    ],
)
def test_the_summary_tells_the_largest_divergence_in_the_unit_of_its_bound(
    replication: Replication, told: dict[str, Any]
) -> None:
    view = _view(_run(replication), _applied(1, divergence=0.2, lag=3))
    assert view.to_summary()["divergence"] == told
    assert (view.divergence_bound, view.divergence_unit) == (replication.bound, replication.unit)


def test_nothing_is_known_of_divergence_before_the_first_word_of_it() -> None:
    view = _view(_run(Bounded()), _applied(1))
    assert view.to_summary()["divergence"] == {"max": None, "bound": 8, "unit": "updates"}
    assert RunView().to_summary()["divergence"] == {"max": None, "bound": None, "unit": None}


def test_copies_are_known_by_shard_with_their_status() -> None:
    view = _view(_copy("ready"), _copy("in sync", at=2.0), _copy("ready", shard=1, copy="server-1-2"))
    found = view.protection.copies
    assert [(shard, name, one.status, one.since) for shard in found for name, one in found[shard].items()] == [
        (0, "server-0-2", "in sync", 2.0),
        (1, "server-1-2", "ready", 1.0),
    ]
    assert [one["copy"] for one in view.to_summary()["copies"]] == ["server-0-2", "server-1-2"]
    assert _texts(view) == []


def test_a_lost_replica_is_an_incident() -> None:
    view = _view(_copy("in sync"), _copy("lost", reason="closed connection"))
    assert _texts(view) == ["shard 0: replica server-0-2 lost (closed connection)"]


def test_the_loss_of_a_server_is_told_by_the_failover_alone(promoted: MakeRecord) -> None:
    """Whether the server was the shard's first one, of which nothing was told, or had been promoted."""
    view = _view(_copy("lost", copy="server-0-1", reason="closed connection"), promoted())
    view.apply(_copy("lost", reason="closed connection"))
    assert [incident.kind for incident in view.incidents] == ["promoted"]
    assert view.protection.copies[0]["server-0-2"].status == "lost"


def test_a_promoted_copy_is_known_as_such(promoted: MakeRecord, taken_over: MakeRecord) -> None:
    view = _view(_copy("in sync"), promoted(), taken_over())
    assert [(one.copy, one.status) for one in view.protection.copies[0].values()] == [("server-0-2", "promoted")]
    assert list(view.protection.copies) == [0]


def test_where_a_promoted_copy_is_is_not_where_the_lost_server_was(promoted: MakeRecord) -> None:
    view = _view(_copy("in sync"), promoted(process="tcp://a:1 pid 7"))
    assert view.protection.copies[0]["server-0-2"].process == "tcp://b:1"
    assert [one["process"] for one in view.to_summary()["failovers"]] == ["tcp://a:1 pid 7"]


def test_a_step_beyond_the_bound_is_an_incident_and_the_summary_tells_the_first() -> None:
    """Whoever recovers the run hears of it again."""
    record = {"kind": "beyond bound", "at": 1.0, "shard": 1, "version": 3, "step": 0.75, "bound": 0.5}
    view = _view(record, {**record, "at": 9.0, "version": 40})
    text = (
        "the step to version 3 was 0.75 long on shard 1, more than its part of max_divergence, 0.5: "
        "such updates wait for their copy, as under chain; raise it to merge updates"
    )
    assert _texts(view)[0] == text
    assert view.to_summary()["long_step"] == {
        "at": 1.0, "shard": 1, "version": 3, "step": 0.75, "bound": 0.5, "text": text
    }  # fmt: skip
    assert RunView().to_summary()["long_step"] is None


def test_shards_without_a_replica_in_sync_are_listed() -> None:
    """The newest list counts; it is empty when all are protected."""
    view = _view({"kind": "protection", "at": 1.0, "shards": [0, 2]})
    assert view.protection.unprotected == (0, 2)
    view.apply({"kind": "protection", "at": 2.0, "shards": []})
    assert view.to_summary()["unprotected"] == []


def _survives(at: float, what: str, why: str = "") -> Record:
    return {"kind": "survives", "at": at, "what": what, "why": why}


def test_the_newest_word_of_what_a_run_survives_counts_and_since_when() -> None:
    view = _view(_survives(1.0, "nothing", "no standby"), _survives(2.0, "any one process", "a"))
    assert view.to_summary()["survives"] == {"what": "any one process", "why": "a", "since": 2.0}
    view.apply(_survives(3.0, "any one process", "b"))
    assert view.to_summary()["survives"] == {"what": "any one process", "why": "b", "since": 2.0}


def test_what_a_run_survived_before_it_was_recovered_is_not_known_of_it_now() -> None:
    view = _view(_survives(1.0, "any one host"), _run(Bounded()))
    assert view.to_summary()["survives"] is None


def test_a_replica_that_has_moved_is_an_incident_and_no_loss() -> None:
    view = _view(_copy("in sync"), _copy("moved", reason="moved away from the host of another copy of shard 0"))
    assert _texts(view) == ["shard 0: replica server-0-2 moved away from the host of another copy of shard 0"]
    many = [_copy("moved", copy=f"replica-{number}") for number in range(3 * COPIES)]
    assert len(_view(*many).protection.copies[0]) <= COPIES


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, f"{CLOSED}; 3 updates lost, distance <= 0.12 of 0.5"),
        ({"bound": 8, "unit": "updates", "distance_lost": None}, f"{CLOSED}; 3 of at most 8 updates lost"),
        ({"updates_lost": 1, "bound": None, "unit": None}, f"{CLOSED}; 1 update lost, distance <= 0.12"),
        (
            {"updates_lost": 0, "distance_lost": 0.0, "signal": "retired"},
            "shard 0: server retired, replica promoted in 0.08 s; nothing lost",
        ),
    ],
)
def test_a_failover_is_one_clear_line(promoted: MakeRecord, changes: Record, text: str) -> None:
    assert _texts(_view(promoted(**changes))) == [text]


def test_a_takeover_is_one_clear_line(taken_over: MakeRecord) -> None:
    text = "coordinator lost (silent for 1.2 s), standby took over in 0.20 s (term 2)"
    assert _texts(_view(taken_over())) == [text]


def test_a_failover_is_complete_with_its_first_commit(promoted: MakeRecord, taken_over: MakeRecord) -> None:
    """Role, shard and epoch say to which one a commit belongs."""
    view = _view(promoted(), promoted(shard=1), taken_over())
    resumed = {"kind": "resumed", "at": 2.5, "epoch": 2, "first_commit_seconds": 0.4}
    view.apply({**resumed, "role": "server", "shard": 1})
    assert [one.first_commit_seconds for one in view.protection.failovers] == [None, 0.4, None]
    view.apply({**resumed, "role": "server", "shard": 7})
    view.apply({**resumed, "role": "coordinator", "shard": -1})
    assert [one["first_commit_seconds"] for one in view.to_summary()["failovers"]] == [None, 0.4, 0.4]


def test_the_summary_tells_of_each_failover(promoted: MakeRecord) -> None:
    (told,) = _view(promoted()).to_summary()["failovers"]
    expected = {
        "role": "server",
        "signal": "closed connection",
        "detected_seconds": 0.01,
        "promoted_seconds": 0.08,
        "first_commit_seconds": None,
        "distance_lost": 0.12,
        "updates_lost": 3,
    }
    assert told.items() >= expected.items()


def test_a_failover_that_a_new_term_logs_again_counts_once(promoted: MakeRecord) -> None:
    assert len(_view(promoted(), promoted()).protection.failovers) == 1


def test_failovers_before_and_after_a_recovery_are_all_told(promoted: MakeRecord) -> None:
    """Epochs begin with 1 again then; a first commit belongs to the life that it was logged in."""
    resumed = {"kind": "resumed", "at": 2.5, "role": "server", "shard": 0, "epoch": 2}
    view = _view(
        _run(Bounded()), promoted(), {**resumed, "first_commit_seconds": 0.4},
        _run(Bounded()), promoted(at=7.0), {**resumed, "first_commit_seconds": 0.6},
    )  # fmt: skip
    assert [(one.at, one.first_commit_seconds) for one in view.protection.failovers] == [(2.0, 0.4), (7.0, 0.6)]


def test_terms_and_epochs_grow_with_failovers(promoted: MakeRecord, taken_over: MakeRecord) -> None:
    view = _view(promoted(epoch=3), promoted(epoch=2), taken_over(epoch=4))
    assert (view.protection.term, view.protection.epochs) == (4, {0: 3})
    assert (view.to_summary()["term"], view.to_summary()["shard_epochs"]) == (4, {"0": 3})


def test_a_recovered_run_has_none_of_the_copies_before(promoted: MakeRecord, taken_over: MakeRecord) -> None:
    """Nor what was true of them: a bound is compared with what was seen under it.  What has happened stays."""
    beyond = {"kind": "beyond bound", "at": 1.0, "shard": 1, "version": 3, "step": 0.75, "bound": 0.5}
    lost = {"kind": "lost positions", "at": 2.0, "shard": 1, "epoch": 2, "first": 4, "last": 6}
    before = (_applied(1, divergence=0.4, lag=3, to_replica_bytes=80), _copy("in sync"), promoted(), taken_over())
    bare = {"kind": "protection", "at": 3.0, "shards": [0]}
    tighter = {**_run(Bounded(max_divergence=0.25)), "term": 3}
    view = _view(_run(Bounded(max_divergence=0.5)), *before, beyond, lost, bare, _checkpoint(1), tighter)
    told = view.to_summary()
    assert told["divergence"] == {"max": None, "bound": 0.25, "unit": "norm"}
    assert (told["copies"], told["unprotected"], told["long_step"], told["to_replica_bytes"]) == ([], [], None, 0)
    assert (told["term"], told["shard_epochs"]) == (3, {})
    assert [len(told[name]) for name in ("failovers", "lost_positions", "checkpoints", "incidents")] == [2, 1, 1, 3]


def test_lost_positions_are_kept() -> None:
    view = _view({"kind": "lost positions", "at": 2.0, "shard": 1, "epoch": 2, "first": 4, "last": 6})
    assert list(view.protection.lost_positions) == [LostPositions(2.0, 1, 2, 4, 6)]
    assert view.to_summary()["lost_positions"] == [{"at": 2.0, "shard": 1, "epoch": 2, "first": 4, "last": 6}]


def test_complete_checkpoints_are_listed_and_failures_counted() -> None:
    """A failure is an incident; one that a failover interrupted is none."""
    view = _view(_checkpoint(1), _checkpoint(2, "failed", "no space left"), _checkpoint(3, "abandoned", "failover"))
    assert view.checkpoints.newest == Checkpoint(1.0, 1, 10, 0.5, 800)
    assert (view.checkpoints.failures, view.checkpoints.abandoned) == (1, 1)
    assert _texts(view) == ["checkpoint 2 of version 20 failed: no space left"]
    summary = view.to_summary()
    assert summary["checkpoints"] == [{"at": 1.0, "number": 1, "version": 10, "seconds": 0.5, "bytes": 800}]
    assert (summary["checkpoint_failures"], summary["checkpoints_abandoned"]) == (1, 1)


def test_the_rule_for_checkpoints_does_not_hide_the_checkpoints() -> None:
    """The run's description and the summary call different things ``checkpoints``."""
    summary = _view(_run(Bounded())).to_summary()
    assert (summary["checkpoint_rule"], summary["checkpoints"]) == ({"every_updates": 5}, [])


def test_a_run_without_a_checkpoint_has_no_newest_one() -> None:
    assert RunView().checkpoints.newest is None


def test_a_long_run_with_many_failures_stays_small(promoted: MakeRecord) -> None:
    """What is kept is bounded, the newest is among it, and totals are exact."""
    view, total = RunView(), 3 * SERIES_POINTS
    for number in range(total):
        view.apply(_applied(number + 1, at=float(number), divergence=0.1, lag=1))
        view.apply(_checkpoint(number + 1))
        view.apply(_copy("ready", copy=f"server-0-{number}"))
        view.apply(_copy("lost", copy=f"server-0-{number}"))
        view.apply(promoted(epoch=number + 2, copy=f"server-0-{number}"))
        view.apply(_copy("lost", copy=f"server-0-{number}"))
        view.apply({"kind": "lost positions", "at": 1.0, "shard": 0, "epoch": 2, "first": 4, "last": 6})
    assert len(view.protection.divergences.items) <= SERIES_POINTS + 1
    assert len(view.checkpoints.complete.items) <= SERIES_POINTS + 1
    assert view.checkpoints.newest == Checkpoint(float(total), total, 10 * total, 0.5, 800)
    assert view.to_summary()["checkpoints_complete"] == total
    assert list(view.protection.copies[0])[-1] == f"server-0-{total - 1}"
    assert len(view.protection.copies[0]) == COPIES
    assert len(view.protection.failovers) == FAILOVERS
    assert view.protection.failovers[-1].epoch == total + 1
    assert len(view.protection.lost_positions) == LOSSES


def test_live_copies_are_never_forgotten() -> None:
    view = _view(*(_copy("ready", copy=f"server-0-{number}") for number in range(COPIES + 3)))
    assert len(view.protection.copies[0]) == COPIES + 3


def test_the_summary_is_json(promoted: MakeRecord) -> None:
    view = _view(_run(Bounded()), _copy("ready"), promoted(distance_lost=float("inf")), _checkpoint(1))
    summary = view.to_summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
