"""Cutoff in whole runs: whom it waits for, what it learns from a commit, and what it refuses before the start."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from psplatform.core.plan import Plan, Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.schedules import Constant
from psplatform.memory import MemoryRun
from psplatform.memory.arithmetic import Metadata
from psplatform.policies.cutoff import Cutoff
from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.forgetting import Forgetting
from psplatform.policies.run_times.generative import Generative
from psplatform.policies.run_times.planner import observation
from psplatform.policies.run_times.predictor import Choice, Observation, Predictor, Slots, best_cutoff
from psplatform.policies.run_times.state_space import Shape, first_weights


def prepare(
    policy: Cutoff, workers: int, updates: int, compute_s: Callable[[int, int], float], **driven: Any
) -> MemoryRun:
    plan = Plan(
        run="cutoff",
        workers=workers,
        shards=1,
        samples=100,
        batch_size=4,
        stop=Stop(updates=updates),
        schedule=Constant(),
    )
    run = MemoryRun(plan, policy, compute_s, **driven)
    for number in range(workers):
        run.join(f"w{number}")
    return run


def table(rounds: int, workers: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).gamma(9.0, 0.1, (rounds, workers))


def replay(times: np.ndarray) -> Callable[[int, int], float]:
    """Let a worker's n-th gradient take what row n says; everybody begins every round."""
    return lambda slot, sequence: float(times[(sequence - 1) % len(times), slot])


def accepted(run: MemoryRun) -> list[int]:
    return [len(one["slots"]) for one in run.of_kind("commit")]


def untrained(workers: int) -> FittedModel:
    shape = Shape(workers, state=2, hidden=3)
    return FittedModel(shape, first_weights(shape, np.full((20, workers), 0.5), np.random.default_rng(0)))


# --- whole runs ---


def test_the_oracle_takes_the_best_number_in_every_round() -> None:
    times = table(30, 9)
    policy = Cutoff(predictor="oracle")
    policy.true_times = lambda number, slots: times[number, slots]
    policy.check(9)
    run = prepare(policy, 9, 30, replay(times))
    run.run()
    assert accepted(run) == [best_cutoff(np.sort(row)) for row in times]
    assert len(set(accepted(run))) > 2


def test_a_driver_that_knows_the_times_to_come_tells_the_oracle_whoever_joins_or_is_lost() -> None:
    """Slots fall behind in their sequences, and the oracle goes by these."""
    times = table(60, 6)
    policy = Cutoff(predictor="oracle")
    policy.foresee(replay(times))
    policy.check(6)
    run = prepare(policy, 6, 40, replay(times))
    run.kill("w1", at=2.0)
    run.join("new", at=10.0)
    run.run()
    lost, joined = (one["at"] for one in [*run.of_kind("lost"), *run.of_kind("joined")[6:]])
    begun, taking_part = 0.0, set()
    for commit in run.of_kind("commit"):
        starts = [one for one in run.of_kind("start") if one["version"] == commit["version"] - 1]
        if not begun <= lost <= commit["at"] and not begun <= joined <= commit["at"]:
            row = np.sort([replay(times)(one["slot"], one["sequence"]) for one in starts])
            assert len(commit["slots"]) == best_cutoff(row)
            taking_part.add((begun > lost, len(starts)))
        begun = commit["at"]
    assert taking_part == {(False, 6), (True, 5), (True, 6)}


def test_a_run_chooses_what_a_loop_over_the_same_rounds_chooses() -> None:
    """Run times, censoring and order reach the predictor as they are, through all of the engine."""
    times = table(60, 8)
    times[:, 7] += 2.0
    run = prepare(Cutoff(), 8, 60, replay(times))
    run.run()
    predictor, slots, expected = Forgetting(0), np.arange(8), []
    for number, row in enumerate(times):
        cutoff = 8 if number < 3 else predictor.choose(slots).cutoff
        known = np.argsort(row, kind="stable")[:cutoff]
        predictor.observe(observation({int(slot): row[slot] for slot in known}, set(range(8)) - set(known.tolist())))
        expected.append(cutoff)
    assert accepted(run) == expected
    assert max(expected[10:]) == 7


def test_the_rate_does_not_depend_on_the_number_accepted() -> None:
    run = prepare(Cutoff(predictor="static", c=2), 4, 10, replay(table(10, 4)))
    run.run()
    assert accepted(run) == [2] * 10
    assert {one["rate"] for one in run.of_kind("commit")} == {1.0}


def test_those_who_are_not_done_are_killed_and_begin_anew() -> None:
    times = table(10, 4)
    run = prepare(Cutoff(predictor="static", c=3), 4, 10, replay(times))
    run.run()
    assert len(run.of_kind("aborted")) >= 9
    assert run.agenda.now == pytest.approx(np.sort(times, axis=1)[:, 2].sum())


def test_the_log_says_why_so_many() -> None:
    run = prepare(Cutoff(full_rounds=1), 3, 3, replay(table(3, 3)))
    run.run()
    reasons = [one["reason"] for one in run.of_kind("commit")]
    assert reasons[0] == "all live workers are in: full round 1 of 1 to begin with"
    assert "as each worker's last run times say" in reasons[1]


def test_exploring_makes_some_rounds_full_and_always_the_same_ones() -> None:
    def full_rounds(seed: int) -> list[int]:
        run = prepare(Cutoff(predictor="static", c=2, explore=0.25, seed=seed), 4, 80, replay(table(80, 4)))
        run.run()
        return [number for number, count in enumerate(accepted(run)) if count == 4]

    assert 10 <= len(full_rounds(0)) <= 30
    assert full_rounds(0) == full_rounds(0) != full_rounds(1)


# --- what is learned ---


class Spy(Predictor):
    """Always takes the same number and notes what it is told."""

    def __init__(self, cutoff: int = 2) -> None:
        self.cutoff = cutoff
        self.seen: list[Observation] = []
        self.welcomed: list[int] = []

    def choose(self, slots: Slots) -> Choice:
        return Choice(min(self.cutoff, len(slots)), "given")

    def observe(self, seen: Observation) -> None:
        self.seen.append(seen)

    def welcome(self, slot: int) -> None:
        self.welcomed.append(slot)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    found = Spy()
    monkeypatch.setattr("psplatform.policies.run_times.planner.make_predictor", lambda *a, **k: found)
    return found


class TakesTheTimeOfDeath(Cutoff):
    """Error (e): notes for a killed worker the time at which it was killed, as if it had been done."""

    def on_commit(self, commit: Any, view: Any) -> None:
        planner = self._planner_for(view.workers)
        super().on_commit(commit, view)
        seen: Any = planner._unlearned
        times = np.where(seen.censored, seen.cutoff_time, seen.times)
        planner._unlearned = Observation(seen.slots, times, np.zeros(len(times), dtype=bool), seen.cutoff_time)


def censored_as_they_should(policy: Cutoff, spy: Spy) -> bool:
    """Return whether of every round the two fastest are seen and the others known to be above the second."""
    times = table(6, 4)
    prepare(policy, 4, 6, replay(times)).run()
    assert len(spy.seen) >= 5
    right = []
    for seen, row in zip(spy.seen, times, strict=False):
        fastest = set(np.argsort(row)[:2].tolist())
        right.append(
            seen.slots.tolist() == [0, 1, 2, 3]
            and set(np.flatnonzero(~seen.censored).tolist()) == fastest
            and np.allclose(seen.times[~seen.censored], row[~seen.censored])
            and seen.cutoff_time == pytest.approx(np.sort(row)[1])
        )
    return all(right)


def test_who_was_killed_is_known_to_have_needed_longer_and_no_more(spy: Spy) -> None:
    assert censored_as_they_should(Cutoff(), spy)


def test_taking_the_time_of_death_for_a_run_time_would_be_seen(spy: Spy) -> None:
    assert not censored_as_they_should(TakesTheTimeOfDeath(), spy)


def test_a_worker_that_joined_in_mid_round_and_was_cut_off_is_unknown_and_not_slow(spy: Spy) -> None:
    run = prepare(Cutoff(), 3, 4, lambda slot, sequence: [1.0, 1.5, 2.0, 2.5][slot])
    run.join("late", at=1.7)
    run.run()
    run.drain()
    assert [one.slots.tolist() for one in spy.seen] == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3]]
    assert spy.seen[2].censored.tolist() == [False, False, True, True]


def test_a_lost_worker_is_missing_and_the_next_in_its_slot_is_welcomed(spy: Spy) -> None:
    run = prepare(Cutoff(), 4, 8, lambda slot, sequence: 1.0 + 0.1 * slot)
    run.kill("w3", at=1.5)
    run.join("next", at=4.0)
    run.run()
    slots = [one.slots.tolist() for one in spy.seen]
    assert slots[0] == [0, 1, 2, 3]
    assert slots[1] == [0, 1, 2]
    assert slots[-1] == [0, 1, 2, 3]
    assert spy.welcomed == [3]


@pytest.mark.parametrize("predictor", ["forgetting", "generative", "normal", "static"])
def test_a_round_takes_what_there_is_when_too_few_are_left(predictor: str) -> None:
    policy = Cutoff(predictor=predictor, c=4 if predictor == "static" else None, full_rounds=2)
    if predictor == "generative":
        policy._fitted = untrained(4)
    run = prepare(policy, 4, 30, replay(table(30, 4)))
    for number, at in ((1, 3.05), (2, 5.05), (3, 7.05)):
        run.kill(f"w{number}", at=at)
    run.join("other", at=12.0)
    run.join("extra1", at=13.0)
    run.run()
    assert run.finish is not None
    assert run.finish.outcome == "updates"
    assert all(1 <= count <= 4 for count in accepted(run))
    assert 1 in accepted(run)


@pytest.mark.parametrize("options", [{}, {"full_rounds": 100}])
def test_a_worker_that_cannot_contribute_holds_nobody_up(options: dict[str, Any], spy: Spy) -> None:
    """Its gradients are not finite, so that it is alive and idle; what it needed for them is not taken for slow."""
    outcome = lambda slot, sequence: (float("nan") if slot == 2 else 1.0, 1.0)  # noqa: E731
    spy.cutoff = 3
    run = prepare(Cutoff(**options), 3, 5, replay(table(5, 3)), arithmetic=Metadata(outcome=outcome))
    run.run()
    assert accepted(run) == [2] * 5
    assert all(one.slots.tolist() == [0, 1] for one in spy.seen)
    assert spy.seen


def test_more_workers_than_the_model_has_columns_are_handled_and_said_once() -> None:
    policy = Cutoff(predictor="generative", full_rounds=0)
    policy._fitted = untrained(3)
    run = prepare(policy, 3, 40, replay(table(40, 9)))
    run.join("more", at=25.0)
    run.run()
    reasons = [one["reason"] for one in run.of_kind("commit")]
    assert sum("worker 3 has no column in the model of 3 workers" in one for one in reasons) == 1
    assert any("as the generative model predicts" in one for one in reasons)


@pytest.mark.parametrize("predictor", ["forgetting", "generative", "normal", "static", "oracle"])
def test_what_was_learned_goes_on_in_another_process(predictor: str) -> None:
    times = table(60, 4)

    def make() -> Cutoff:
        policy = Cutoff(predictor=predictor, c=3 if predictor == "static" else None)
        policy._fitted = untrained(4) if predictor == "generative" else None
        policy.true_times = lambda number, slots: times[number % 60, slots]
        return policy

    whole = prepare(make(), 4, 60, replay(times))
    whole.run()
    before, after = make(), make()
    prepare(before, 4, 30, replay(times)).run()
    after.restore(msgpack.unpackb(msgpack.packb(before.state())))
    rest = prepare(after, 4, 30, replay(times[30:]))
    rest.run()
    assert accepted(rest) == accepted(whole)[30:]


def test_a_policy_that_learned_nothing_restores_to_nothing() -> None:
    fresh = Cutoff()
    fresh.restore(msgpack.unpackb(msgpack.packb(Cutoff().state())))
    assert fresh.state()["planned"] is None


def test_what_another_predictor_learned_is_left_alone() -> None:
    before, after = Cutoff(predictor="normal"), Cutoff()
    prepare(before, 4, 10, replay(table(10, 4))).run()
    after.restore(before.state())
    assert after.state()["planned"] is None


# --- before the start ---


def read_from(files: dict[str, bytes]) -> Callable[[str], bytes]:
    def read(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(f"no file {name}")
        return files[name]

    return read


def test_a_fitted_model_is_read_and_used(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Cutoff(predictor="generative", model="m.npz")
    policy.load(read_from({"m.npz": untrained(5).to_bytes()}))
    policy.check(5)
    travelled = pickle.loads(pickle.dumps(policy))  # noqa: S301
    assert travelled == policy
    run = prepare(travelled, 5, 25, replay(table(25, 5)))
    run.run()
    assert "as the generative model predicts" in run.of_kind("commit")[-1]["reason"]
    assert isinstance(travelled._planner._predictor, Generative)


@pytest.mark.parametrize(
    ("options", "sentence", "field"),
    [
        ({"predictor": "static", "c": 6}, "c must be at most the number of workers: c = 6, workers = 5", "c"),
        ({"predictor": "static"}, "predictor static needs the number of gradients to wait for; give c", "c"),
        ({"c": 3}, "c goes with predictor=static, not with forgetting", "c"),
        ({"predictor": "oracle"}, "only a simulator knows: use psplatform simulate, or choose", "predictor"),
        ({"model": "m.npz"}, "a model goes with predictor=generative, not forgetting", "model"),
        ({"predictor": "generative", "model": "m.npz"}, "model m.npz was not read; call load first", "model"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], sentence: str, field: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        Cutoff(**options).check(5)
    assert caught.value.field == field


def test_a_model_for_another_number_of_workers_is_refused_with_both_numbers() -> None:
    policy = Cutoff(predictor="generative", model="m.npz")
    policy.load(read_from({"m.npz": untrained(4).to_bytes()}))
    sentence = "model m.npz was fitted for 4 workers and the job has 5; fit one for 5 workers, or run 4"
    with pytest.raises(ConfigurationError, match=sentence):
        policy.check(5)


@pytest.mark.parametrize("name", ["missing.npz", "text.npz"])
def test_a_file_that_holds_no_model_is_refused(name: str) -> None:
    policy = Cutoff(predictor="generative", model=name)
    with pytest.raises(ConfigurationError, match=f"model {name} (cannot be read|is no file of a run-time model)"):
        policy.load(read_from({"text.npz": b"hello"}))


def loaded_after(statement: str) -> set[str]:
    report = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", f"{statement}\n{report}"], capture_output=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_policy_loads_no_predictor() -> None:
    loaded = loaded_after("from psplatform.policies.cutoff import Cutoff; Cutoff().check(4)")
    assert loaded & {"torch", "scipy", "psplatform.policies.run_times"} == set()
    assert "psplatform.policies.cutoff" in loaded


def test_predicting_needs_no_torch() -> None:
    assert "torch" not in loaded_after("import psplatform.policies.run_times.planner")
    assert "torch" in loaded_after("import psplatform.policies.run_times.training")
