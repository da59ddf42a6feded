"""Which process is given a gradient worker or the evaluator, and what replaces one that is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from psplatform.core.protocol.events import EvaluationLost, EvaluatorDied, MemberDied, MemberLost
from psplatform.core.protocol.messages import JOIN_AGAIN, PROCESS_ENDS
from psplatform.core.supervision.decisions import (
    AskOfDeath,
    AwaitWaking,
    Examine,
    LetGo,
    Note,
    ProcessesCame,
    ProcessLeft,
    Report,
    Rules,
    StartEvaluator,
    StartWorker,
)
from psplatform.core.supervision.placement import Placement, Process
from psplatform.core.supervision.unavailable import UnavailableProcesses
from psplatform.core.supervision.workers import WorkerSupervisor
from psplatform.errors import ClusterError, ProcessDied

LEFT = "its Dask worker left the cluster"
OUT = ProcessDied("out of memory", kind="SIGKILL", peer="b", pid=3, code=-9)
ASKED = ClusterError("asked to end", peer="b")


@dataclass
class Run:
    """What else there is of a run: its coordinator and the server of its shard live at `a`."""

    runs: bool = True
    home: str = "a"
    copies: set[str] = field(default_factory=lambda: {"a"})
    left_out: set[str] = field(default_factory=set)
    numbers: Any = field(default_factory=lambda: count(1))

    def next_name(self, role: str) -> str:
        return f"{role}-{next(self.numbers)}"


class Scene:
    """A supervisor, and whoever does what it decides: processes are single letters."""

    def __init__(self, workers: str = "bc", evaluator: str = "d", there: str = "abcd", **rules: Any) -> None:
        self.run, self.unavailable = Run(), UnavailableProcesses()
        fields = {"workers": len(workers), "most": None, "lease_s": 5.0, "deserted_s": 10.0}
        fields |= {"share_after_s": 60.0, "replace_after_s": 1.0}
        self.supervisor = WorkerSupervisor(Rules(**{**fields, **rules}), self.run, self.unavailable)
        self.started = self.supervisor.begin(Placement("a", evaluator, ("a",), tuple(workers)))
        self.now = 0.0
        self.see(there)

    def see(self, there: str, after_s: float = 0.5) -> list[Any]:
        self.now += after_s
        processes = [Process(one, "host", {}) for one in there]
        return self.supervisor.on_sight(processes, set(there), self.now)

    def examined(self, address: str, *, fits: bool = True) -> list[Any]:
        return self.supervisor.on_examined(address, fits=fits)

    def died(self, name: str, address: str, error: Any, *, is_evaluator: bool = False) -> list[Any]:
        return self.supervisor.on_death(AskOfDeath(name, address, is_evaluator), error, self.now)


def addresses(decided: list[Any]) -> list[str]:
    return [one.process.address for one in decided if isinstance(one, Examine)]


def evaluators(decided: list[Any]) -> list[StartEvaluator]:
    return [one for one in decided if isinstance(one, StartEvaluator)]


# --- beginning ---


def test_a_run_begins_with_what_was_placed() -> None:
    scene = Scene()
    assert scene.started == [
        StartWorker("worker-1", "b"),
        StartWorker("worker-2", "c"),
        StartEvaluator("evaluator-3", "d"),
    ]
    assert scene.supervisor.missing == {"worker-1", "worker-2"}
    assert scene.supervisor.hears("worker-1", 1.0)
    assert scene.supervisor.missing == {"worker-2"}
    assert scene.see("abcd") == []


def test_who_is_not_of_the_run_is_not_heard() -> None:
    scene = Scene()
    assert not scene.supervisor.hears("worker-9", 0.0)
    assert not scene.supervisor.hears("", 0.0)
    assert scene.supervisor.hears("evaluator-3", 0.0)


def test_a_successor_goes_on_with_what_there_is_and_starts_what_is_missing() -> None:
    scene = Scene()
    other = WorkerSupervisor(Rules(2, None, 5.0, 10.0, 60.0, 1.0), scene.run, UnavailableProcesses())
    other.adopt({"worker-1": "b"}, None, 0.0)
    decided = other.on_sight([Process(one, "host", {}) for one in "abcd"], set("abcd"), 0.5)
    assert addresses(decided) == ["c"]
    assert evaluators(decided) == [StartEvaluator("evaluator-4", "c")]


def test_a_successor_misses_those_whose_process_is_gone_by_then() -> None:
    scene = Scene()
    other = WorkerSupervisor(Rules(1, None, 5.0, 10.0, 60.0, 1.0), scene.run, UnavailableProcesses())
    other.adopt({"worker-1": "b"}, ("evaluator-3", "d"), 0.0)
    decided = other.on_sight([Process("a", "host", {})], {"a"}, 0.5)
    assert Report(MemberLost("worker-1", LEFT)) in decided
    assert Report(EvaluationLost(LEFT)) in decided


# --- a gradient worker is lost ---


def test_a_lost_worker_is_let_go_of_and_a_free_process_looked_for() -> None:
    scene = Scene(there="abcdef")
    assert scene.supervisor.on_lost("worker-1", "killed") == [
        Report(MemberLost("worker-1", "killed")),
        LetGo("worker-1"),
        AskOfDeath("worker-1", "b"),
        Examine(Process("d", "host", {})),
    ]
    assert scene.unavailable.addresses == {"b"}
    assert scene.examined("d") == [StartWorker("worker-4", "d")]
    assert scene.supervisor.fill() == [], "there are as many as there shall be"


def test_as_many_processes_are_examined_as_workers_are_missing() -> None:
    """Each may have to import what the job refers to, just while the run recovers."""
    scene = Scene(there="abcdefgh")
    assert addresses(scene.see("adefgh")) == ["d", "e"]
    assert addresses(scene.examined("d", fits=False)) == ["f"]
    assert scene.examined("e") == [StartWorker("worker-4", "e")]
    assert scene.examined("f") == [StartWorker("worker-5", "f")]


def test_a_process_that_does_not_fit_is_examined_again_when_one_is_needed() -> None:
    scene = Scene(there="abcd", evaluator="a")
    assert addresses(scene.supervisor.on_lost("worker-1", "killed")) == ["d"]
    assert scene.examined("d", fits=False) == []
    assert addresses(scene.supervisor.fill()) == ["d"]
    scene.supervisor.on_lost("worker-2", "killed")
    assert addresses(scene.examined("d", fits=False)) == ["d"], "it may have woken since it was asked"
    assert scene.examined("d", fits=False) == []


def test_a_process_that_is_taken_while_it_is_examined_gets_none() -> None:
    scene = Scene(there="abcde")
    scene.supervisor.on_lost("worker-1", "killed")
    scene.run.copies.add("d")
    assert addresses(scene.examined("d")) == ["e"]
    scene.run.runs = False
    assert scene.examined("e") == []


def test_no_worker_is_started_in_a_run_that_ends() -> None:
    scene = Scene(there="abcde")
    scene.run.runs = False
    assert addresses(scene.supervisor.on_lost("worker-1", "killed")) == []


def test_one_that_the_coordinator_dismissed_is_lost_no_more() -> None:
    scene = Scene()
    assert LetGo("worker-1") in scene.supervisor.dismiss("worker-1")
    assert scene.supervisor.dismiss("worker-1") == scene.supervisor.on_lost("worker-1", "silent") == []


def test_the_process_of_one_that_is_about_to_end_is_given_no_role() -> None:
    scene = Scene()
    assert scene.supervisor.on_leave("worker-1", PROCESS_ENDS) == scene.supervisor.on_leave("worker-9", "late") == []
    assert scene.unavailable.addresses == {"b"}
    scene.supervisor.on_lost("worker-1", "killed")
    assert scene.examined("d", fits=False) == []
    assert not scene.unavailable.heard("worker-1"), "what is heard of it is its last"


def test_a_process_in_which_none_could_be_started_three_times_is_left_alone() -> None:
    scene = Scene(workers="b", evaluator="a", there="abd")
    lost = ClusterError("gone", peer="b")
    said = Note("no worker could be started at b: gone")
    asked = AskOfDeath("worker-1", "b")
    decided = scene.supervisor.on_not_started("worker-1", lost)
    assert decided[:3] == [said, Report(MemberLost("worker-1", "gone")), asked]
    for _ in range(2):
        assert addresses(decided) == ["d"], "where fewest have failed"
        assert addresses(scene.examined("d", fits=False)) == ["b"]
        (started,) = scene.examined("b")
        decided = scene.supervisor.on_not_started(started.name, lost)
    assert addresses(decided) == ["d"]
    assert scene.examined("d", fits=False) == []
    assert scene.supervisor.on_not_started("worker-1", lost) == []


@pytest.mark.parametrize("reason", [JOIN_AGAIN, "could not attach to a server"])
def test_the_process_of_one_that_leaves_by_itself_can_take_another(reason: str) -> None:
    scene = Scene(there="abc", evaluator="a")
    assert scene.supervisor.on_leave("worker-1", reason) == [LetGo("worker-1"), Examine(Process("b", "host", {}))]
    assert scene.examined("b") == [StartWorker("worker-4", "b")]
    assert scene.unavailable.addresses == set()
    assert scene.supervisor.dismiss("worker-1") == [], "the coordinator hears of it too"


def test_a_process_in_which_workers_give_up_is_tried_three_times_and_after_others() -> None:
    scene = Scene(workers="b", evaluator="a", there="abd")
    for name in ("worker-1", "worker-3", "worker-4"):
        assert addresses(scene.supervisor.on_leave(name, "could not attach to a server")) == ["d"]
        again = scene.examined("d", fits=False)
        assert addresses(again) == ([] if name == "worker-4" else ["b"])
        scene.examined("b", fits=name != "worker-4")


def test_of_what_a_process_died_is_told_when_it_died_by_itself() -> None:
    scene = Scene()
    assert scene.died("worker-1", "b", None) == scene.died("worker-1", "b", ASKED) == []
    assert scene.died("worker-1", "b", OUT) == [Report(MemberDied("worker-1", OUT))]


@pytest.mark.parametrize(("left", "after_s"), [("b", 60.0), ("", 10.0)], ids=["one is left", "none is left"])
def test_where_there_is_no_process_for_it_alone_for_a_while_one_is_started_beside_a_copy(
    left: str, after_s: float
) -> None:
    """As at the start where there are few; nannies may start other processes first."""
    scene = Scene(workers="bc", evaluator="a", there="abc")
    for name, address in (("worker-1", "b"), ("worker-2", "c")):
        if address not in left:
            scene.supervisor.on_lost(name, "killed")
    there = f"a{left}"
    assert addresses(scene.see(there)) == addresses(scene.see(there, after_s - 0.1)) == []
    assert addresses(scene.see(there, 0.1)) == ["a"]
    assert scene.see(there) == [], "it is being asked"
    assert scene.examined("a") == [StartWorker("worker-4", "a")]
    assert scene.see(there, 99.0) == []


def short() -> Scene:
    """Return a run that has lacked one of two gradient workers for so long that any process will do."""
    scene = Scene(workers="bc", evaluator="a", there="abc")
    scene.supervisor.on_lost("worker-1", "killed")
    scene.see("ac")
    assert addresses(scene.see("acd", 59.0)) == ["d"]
    assert scene.examined("d", fits=False) == []
    return scene


def test_a_process_for_it_alone_comes_before_one_with_a_copy() -> None:
    scene = short()
    assert addresses(scene.see("acd", 1.0)) == ["d"], "it is asked once more"
    assert addresses(scene.examined("d", fits=False)) == ["a"]


def test_one_that_does_not_answer_for_long_keeps_no_other_from_being_asked() -> None:
    scene = short()
    assert addresses(scene.see("acd", 1.0)) == ["d"]
    assert scene.see("acd") == scene.see("acd") == []
    assert addresses(scene.examined("d", fits=False)) == ["a"]


def test_what_does_not_fit_is_asked_again_once_a_minute_only() -> None:
    scene = short()
    assert addresses(scene.see("acd", 1.0)) == ["d"]
    assert addresses(scene.examined("d", fits=False)) == ["a"]
    assert scene.examined("a", fits=False) == []
    assert scene.see("acd", 30.0) == scene.see("acd", 29.5) == []
    assert addresses(scene.see("acd", 0.5)) == ["d"]


def test_the_wait_begins_anew_with_the_next_loss() -> None:
    scene = short()
    scene.see("acd", 1.0)
    assert scene.examined("d") == [StartWorker("worker-4", "d")]
    scene.supervisor.hears("worker-2", scene.now)
    scene.supervisor.hears("worker-4", scene.now)
    scene.supervisor.on_lost("worker-4", "killed")
    assert addresses(scene.see("ac", 1.0)) == addresses(scene.see("ac", 58.0)) == []


@pytest.mark.parametrize(("left", "after_s"), [("b", 60.0), ("", 10.0)], ids=["one is left", "none is left"])
def test_the_wait_does_not_begin_anew_with_one_that_cannot_be_started(left: str, after_s: float) -> None:
    scene = Scene(workers="bc", evaluator="a", there="abc")
    for name, address in (("worker-1", "b"), ("worker-2", "c")):
        if address in left:
            scene.supervisor.hears(name, scene.now)
        else:
            scene.supervisor.on_lost(name, "killed")
    there = f"a{left}"
    assert addresses(scene.see(there)) == []
    assert addresses(scene.see(there, after_s)) == ["a"]
    for _ in range(2):
        (started,) = scene.examined("a")
        assert scene.see(there) == [], "it is being made"
        decided = scene.supervisor.on_not_started(started.name, ClusterError("gone", peer="a"))
        assert addresses(decided) == ["a"], "nothing else has come meanwhile"


def test_the_wait_does_not_begin_before_one_is_missing_when_the_cluster_cannot_be_seen() -> None:
    scene = Scene(workers="bc", evaluator="a", there="abcd")
    scene.supervisor.on_lost("worker-1", "killed")
    scene.supervisor.on_lost("worker-2", "killed")
    assert scene.examined("d") == [StartWorker("worker-4", "d")]
    assert addresses(scene.see("ad", 99.0)) == addresses(scene.see("ad", 59.0)) == []
    assert addresses(scene.see("ad", 1.0)) == ["a"]


# --- processes come and go ---


def test_a_process_that_comes_later_takes_part() -> None:
    scene = Scene()
    decided = scene.see("abcdef")
    assert decided[0] == ProcessesCame()
    assert addresses(decided) == ["e", "f"]
    assert scene.examined("e") == [StartWorker("worker-4", "e")]
    assert scene.examined("f") == [StartWorker("worker-5", "f")]
    assert scene.see("abcdef") == []


def test_processes_that_come_as_others_leave_take_part_as_well() -> None:
    scene = Scene()
    decided = scene.see("acdefg")
    assert addresses(decided) == ["d", "e", "f", "g"]
    started = [one for address in "defg" for one in scene.examined(address)]
    assert [one.address for one in started] == ["d", "e", "f", "g"]


def test_one_that_comes_and_is_away_when_it_was_examined_is_examined_again() -> None:
    scene = Scene()
    assert addresses(scene.see("abcde")) == ["e"]
    scene.see("abcd")
    assert scene.examined("e") == []
    assert addresses(scene.see("abcde")) == ["e"]
    assert scene.examined("e") == [StartWorker("worker-4", "e")]


def test_one_that_comes_with_a_copy_is_not_asked_beside_those_without() -> None:
    """It might answer before them."""
    scene = short()
    scene.run.copies.add("e")
    assert addresses(scene.see("acdef", 1.0)) == ["d", "f"]
    assert scene.examined("f") == [StartWorker("worker-4", "f")]
    scene.run.copies.remove("e")
    assert addresses(scene.see("acdef")) == ["e"]
    assert scene.examined("e") == [StartWorker("worker-5", "e")]


def test_there_are_no_more_than_the_job_allows() -> None:
    scene = Scene(most=3)
    scene.see("abcdef")
    assert scene.examined("e") == [StartWorker("worker-4", "e")]
    assert scene.examined("f") == []


def test_all_roles_of_a_process_that_leaves_are_lost() -> None:
    scene = Scene(workers="b", evaluator="b", there="abc")
    decided = scene.see("ac")
    assert Report(MemberLost("worker-1", LEFT)) in decided
    assert Report(EvaluationLost(LEFT)) in decided
    assert ProcessLeft("b", LEFT) in decided
    assert scene.see("ac") == []


def test_all_roles_of_a_process_that_was_seen_to_end_are_lost_before_the_cluster_misses_it() -> None:
    """Others are looked for with the next look at the cluster, even if there the process is still listed."""
    scene = Scene(workers="b", evaluator="b", there="abc")
    assert scene.supervisor.on_process_ended("b", "process ended") == [
        Report(MemberLost("worker-1", "process ended")),
        LetGo("worker-1"),
        AskOfDeath("worker-1", "b"),
        LetGo("evaluator-2"),
        Report(EvaluationLost("process ended")),
        AskOfDeath("evaluator-2", "b", is_evaluator=True, opened=False),
    ]
    assert scene.supervisor.on_process_ended("b", "process ended") == []
    assert addresses(scene.see("abc")) == ["c"]
    assert scene.see("ac") == [ProcessLeft("b", LEFT)]


def test_a_process_that_ended_with_none_of_them_changes_nothing() -> None:
    scene = Scene(workers="b", evaluator="c", there="abcd")
    assert scene.supervisor.on_process_ended("a", "process ended") == []
    assert scene.see("abcd") == []


# --- silence ---


def test_who_is_silent_is_lost_and_its_process_used_again_when_it_wakes() -> None:
    scene = Scene()
    scene.supervisor.hears("worker-1", 1.0)
    scene.supervisor.hears("evaluator-3", 2.0)
    assert scene.supervisor.on_silence(5.9) == []
    decided = scene.supervisor.on_silence(6.0)
    assert decided[:3] == [
        AwaitWaking("worker-1"),
        Report(MemberLost("worker-1", "silent for 5 s")),
        LetGo("worker-1"),
    ]
    assert scene.supervisor.on_silence(7.0)[0] == AwaitWaking("evaluator-3")
    assert scene.supervisor.on_silence(99.0) == []
    scene.examined("d", fits=False)
    assert scene.unavailable.heard("worker-1")
    assert addresses(scene.supervisor.fill()) == ["b"]


# --- the evaluator ---


def test_a_lost_evaluator_is_replaced_when_it_is_known_of_what_it_died() -> None:
    scene = Scene()
    assert scene.supervisor.on_evaluator_lost("evaluator-3", "killed") == [
        LetGo("evaluator-3"),
        Report(EvaluationLost("killed")),
        AskOfDeath("evaluator-3", "d", is_evaluator=True, opened=False),
    ]
    assert scene.supervisor.on_evaluator_lost("evaluator-3", "killed") == []
    assert evaluators(scene.see("abc", 60.0)) == [], "it is not known yet"
    assert scene.died("evaluator-3", "d", ASKED, is_evaluator=True) == []
    assert scene.see("abc", 0.5) == [], "first, the run must go on"
    assert scene.see("abc", 0.5) == [StartEvaluator("evaluator-4", "a")]
    assert scene.supervisor.evaluator == "evaluator-4"


@pytest.mark.parametrize("opened", [True, False])
def test_whether_it_had_opened_the_task_is_told_with_its_death(*, opened: bool) -> None:
    """Else the user's code was running in it, whatever there was to evaluate."""
    scene = Scene()
    if opened:
        scene.supervisor.hears("evaluator-3", 1.0)
    (*_, asked) = scene.supervisor.on_evaluator_lost("evaluator-3", "killed")
    assert scene.supervisor.on_death(asked, OUT, 2.0) == [Report(EvaluatorDied(OUT, opened=opened))]


def test_one_that_died_by_itself_is_replaced_apart_from_servers() -> None:
    """What ended it would end them, too; a nanny may start a process that no server shares with it."""
    scene = Scene(workers="b")
    scene.supervisor.on_evaluator_lost("evaluator-2", "killed")
    assert scene.died("evaluator-2", "d", OUT, is_evaluator=True) == [Report(EvaluatorDied(OUT))]
    scene.run.copies |= {"b", "c"}
    assert evaluators(scene.see("abc", 5.0)) == []
    assert evaluators(scene.see("abce")) == [StartEvaluator("evaluator-3", "e")]


def test_it_waits_for_such_a_process_for_a_while_only() -> None:
    scene = Scene(workers="b")
    scene.supervisor.on_evaluator_lost("evaluator-2", "killed")
    scene.died("evaluator-2", "d", OUT, is_evaluator=True)
    scene.run.copies |= {"b", "c"}
    assert evaluators(scene.see("abc", 10.9)) == []
    assert evaluators(scene.see("abc", 0.2)) == [StartEvaluator("evaluator-3", "a")]


def test_an_evaluator_whose_process_lacks_what_it_needs_is_started_elsewhere() -> None:
    scene = Scene(there="abcde")
    scene.run.left_out.add("d")
    assert scene.supervisor.on_evaluator_lacking("evaluator-3") == [StartEvaluator("evaluator-3", "e")]
    assert scene.supervisor.on_evaluator_lacking("evaluator-9") == []
    scene.run.left_out.add("e")
    assert scene.supervisor.on_evaluator_lacking("evaluator-3") == [StartEvaluator("evaluator-3", "a")], (
        "there is no other"
    )


def test_what_came_of_an_older_evaluator_changes_nothing() -> None:
    scene = Scene()
    scene.supervisor.on_evaluator_lost("evaluator-3", "killed")
    scene.died("evaluator-3", "d", ASKED, is_evaluator=True)
    scene.see("abcd", 1.0)
    assert scene.supervisor.on_evaluator_lost("evaluator-3", "late") == []
    assert scene.died("evaluator-3", "d", OUT, is_evaluator=True) == [Report(EvaluatorDied(OUT))]
    assert scene.see("abcd", 60.0) == []
