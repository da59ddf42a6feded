"""What becomes of an announced gradient: once each, never one that is not finite."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.plan import Stop
from psplatform.core.policy import (
    APPLY,
    Answer,
    Gradient,
    Policy,
    Traits,
    Verdict,
    View,
    Worker,
    drop,
    yes,
)
from psplatform.core.protocol import messages as msg
from psplatform.core.protocol.events import StopRequested
from psplatform.core.reasons import Reason
from psplatform.errors import BadBatchError, DivergedError
from psplatform.policies.asp import Asynchronous
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.ssp import StaleSynchronous

Open = Callable[..., Any]
INFINITE = {"squared_norm": math.inf, "loss": 7.0}
NAN = {"squared_norm": math.nan, "loss": math.nan}


def failure(scene: Any) -> DivergedError:
    assert isinstance(scene.failure, DivergedError)
    return scene.failure


def running(scene: Any) -> bool:
    return not scene.coordinator.state.stopping


# --- recognising repeats ---


def test_a_gradient_is_judged_once_however_often_it_is_announced(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a")
    assert len(scene.sent(msg.Commit)) == 1
    assert scene.announce("a", sequence=1).effects == []


def test_a_repeat_in_the_pool_is_not_pooled_again(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").announce("a")
    assert scene.coordinator.state.pooled == 1
    assert len(scene.logged("gradient")) == 1


def test_an_announcement_of_a_dismissed_process_is_void_and_answered_with_a_stop(open_scene: Open) -> None:
    scene = open_scene().join("a", "b").lose("a").announce("a")
    assert scene.sent(msg.Stop) == [msg.Stop(1, "declared lost; join again")]
    assert scene.sent(msg.Commit) == []


def test_every_gradient_is_logged_with_its_figures(open_scene: Open) -> None:
    scene = open_scene().join("a").announce("a", squared_norm=9.0, loss=0.25, compute_s=2.0)
    (record,) = scene.logged("gradient")
    assert (record["slot"], record["sequence"], record["label"]) == (0, 1, 0)
    assert (record["norm"], record["loss"], record["compute_s"]) == (3.0, 0.25, 2.0)


def test_a_worker_that_computed_on_a_newer_version_than_it_was_released_on_has_worked_on_that(
    open_scene: Open,
) -> None:
    """Its pull was answered after the next commit; its gradient is in the pool and it must wait for a newer one.

    Otherwise it would write its next gradient over the one that no shard has read yet.
    """
    scene = open_scene(BackupWorkers(k=2), workers=3).join("a", "b", "c").announce("a").announce("b")
    assert scene.coordinator.state.version == 1
    scene.announce("c", label=1)
    assert scene.coordinator.state.pooled == 1
    assert scene.sent(msg.Release) == []
    (commit,) = scene.announce("a").sent(msg.Commit)
    assert [one.member for one in commit.contributions] == ["a", "c"]
    assert scene.addressed(msg.Release) == ["a", "c"]


# --- verdicts ---


@dataclass
class Refusing(Policy):
    """Drops everything, with or without a reason."""

    reason: Reason | None = None

    @property
    def traits(self) -> Traits:
        return Traits(exact=False)

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return drop(self.reason) if self.reason else Verdict(drop(Reason("x", "")).fate)

    def may_start(self, worker: Worker, view: View) -> Answer:
        return yes("always")


def test_a_dropped_gradient_is_logged_with_the_policy_s_reason(open_scene: Open) -> None:
    scene = open_scene(Refusing(Reason("ugly", "norm 1 is no norm"))).join("a").announce("a")
    (record,) = scene.logged("dropped")
    assert (record["reason"], record["detail"]) == ("ugly", "norm 1 is no norm")
    assert (record["slot"], record["sequence"], record["label"], record["version"]) == (0, 1, 0, 0)
    assert scene.sent(msg.Commit) == []


def test_a_drop_without_a_reason_says_so(open_scene: Open) -> None:
    scene = open_scene(Refusing()).join("a").announce("a")
    assert scene.logged("dropped")[0]["detail"] == "no reason given"


def test_a_late_gradient_is_dropped_as_stale_and_its_worker_takes_the_newest_version(open_scene: Open) -> None:
    scene = open_scene(BackupWorkers(k=1)).join("a", "b").announce("a").announce("b", label=0)
    (record,) = scene.logged("dropped")
    assert (record["reason"], record["detail"]) == ("stale", "computed on version 0, the model is at 1")
    assert [one.version for one in scene.sent(msg.Release)] == [1]


# --- what is not finite ---


@dataclass
class RefusingTheSecond(Asynchronous):
    """Applies all but the second gradient of each slot."""

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        return drop(Reason("second", "")) if gradient.sequence == 2 else APPLY


@pytest.mark.parametrize("figures", [INFINITE, NAN, {"loss": math.inf}, {"squared_norm": -math.nan}])
def test_a_gradient_that_is_not_finite_is_dropped_and_the_round_goes_on(open_scene: Open, figures: Any) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a", **figures)
    assert scene.logged("dropped")[0]["reason"] == "non-finite"
    (commit,) = scene.announce("b").sent(msg.Commit)
    assert [one.slot for one in commit.contributions] == [1]
    assert running(scene)


def test_a_whole_round_that_is_not_finite_stops_the_run_and_names_worker_version_and_loss(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").announce("b")
    scene.announce("b", **INFINITE).announce("a", **INFINITE)
    found = failure(scene)
    assert (found.slot, found.version, found.loss) == (0, 1, 7.0)
    assert "worker 0 at version 1 had loss 7; lower the learning rate or clip" in str(found)


def test_the_version_named_is_the_one_the_gradient_was_computed_on(open_scene: Open) -> None:
    scene = open_scene(workers=1).join("a").announce("a").announce("a")
    scene.announce("a", label=0, **NAN)
    assert failure(scene).version == 0
    assert math.isnan(failure(scene).loss)


def test_a_commit_clears_what_was_not_finite_before_it(open_scene: Open) -> None:
    scene = open_scene().join("a", "b").announce("a", **NAN).announce("b").announce("b", **NAN)
    assert running(scene)
    scene.announce("a", **NAN)
    assert failure(scene).slot == 0


def test_the_last_finite_worker_s_loss_reveals_that_all_others_diverged(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a", **NAN)
    assert running(scene)
    assert failure(scene.lose("b")).slot == 0


def test_a_finite_gradient_that_waits_in_the_pool_keeps_the_run_from_diverging(open_scene: Open) -> None:
    """Its worker is dead, and everybody alive diverged: the round is committed and may mend it."""
    scene = open_scene(BulkSynchronous()).join("a", "b").announce("a").lose("a").announce("b", **NAN)
    assert running(scene)
    assert [one.contributions[0].member for one in scene.sent(msg.Commit)] == ["a"]


def test_the_worker_named_is_the_one_that_diverged_last(open_scene: Open) -> None:
    scene = open_scene().join("a", "b", "c")
    scene.announce("a", **NAN).announce("b", **NAN).announce("a", **INFINITE).lose("c")
    assert (failure(scene).slot, failure(scene).loss) == (0, 7.0)


def test_a_new_process_in_a_slot_does_not_inherit_that_its_predecessor_diverged(open_scene: Open) -> None:
    scene = open_scene().join("a", "b").announce("a", **NAN).lose("a").join("c").announce("b", **NAN)
    assert running(scene)
    scene.announce("c", **NAN)
    assert failure(scene).slot == 0


def test_a_finite_gradient_that_is_dropped_shows_that_its_worker_has_not_diverged(open_scene: Open) -> None:
    """The rule speaks of each live worker's latest gradient."""
    scene = open_scene(RefusingTheSecond()).join("a", "b").announce("a", **NAN).announce("a").announce("b", **NAN)
    assert running(scene)
    scene.announce("a", **NAN)
    assert failure(scene).slot == 0


def test_a_run_that_is_ending_does_not_diverge(open_scene: Open) -> None:
    scene = open_scene(workers=1).join("a")
    scene.handle(StopRequested("enough"))
    scene.announce("a", **NAN)
    assert scene.failure is None
    assert scene.logged("dropped")[0]["reason"] == "stopped"


def test_a_worker_that_waits_for_one_that_brings_nothing_finite_does_not_keep_the_run_from_diverging(
    open_scene: Open,
) -> None:
    """The fast one waits at the bound; the slow one, alone, would try again for ever."""
    scene = open_scene(StaleSynchronous(bound=0)).join("a", "b").announce("a").announce("b", **NAN)
    assert running(scene), "one gradient of two workers may be bad luck"
    scene.announce("b", **NAN)
    assert failure(scene).slot == 1


def test_a_worker_that_has_just_joined_may_still_bring_something_finite(open_scene: Open) -> None:
    scene = open_scene(StaleSynchronous(bound=0)).join("a", "b").announce("a").announce("b", **NAN)
    scene.join("c").announce("b", **NAN).announce("b", **NAN)
    assert running(scene)
    scene.announce("c", **NAN)
    assert failure(scene).slot == 2


# --- batches that are left out ---

OF_DATA = {**NAN, "flaw": msg.Flaw("the input", (7,), 1, of_data=True)}
OF_LOSS = {**NAN, "flaw": msg.Flaw("the loss", (7,), 1)}


def test_fewer_than_the_tries_in_a_row_are_tried_again_with_other_batches(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous(), workers=1, tries=3, deal_epochs=True).join("a")
    for number in (1, 2):
        scene.announce("a", **NAN)
        assert running(scene)
        assert [one.assignment.number for one in scene.sent(msg.Release)] == [number]
    assert failure(scene.announce("a", **NAN)).slot == 0


def test_a_whole_round_may_be_bad_luck_where_it_has_fewer_than_the_tries(open_scene: Open) -> None:
    scene = open_scene(BulkSynchronous(), tries=3, deal_epochs=True).join("a", "b")
    scene.announce("a", **NAN)
    assert not scene.sent(msg.Release), "the other may still bring something finite"
    scene.announce("b", **NAN)
    assert scene.addressed(msg.Release) == ["a", "b"]
    (commit,) = scene.announce("a").announce("b").sent(msg.Commit)
    assert [one.slot for one in commit.contributions] == [0, 1]


def test_samples_that_are_not_finite_say_nothing_of_the_model(open_scene: Open) -> None:
    """Only when not a batch of a whole epoch was finite does the run end, and with another advice."""
    scene = open_scene(BulkSynchronous(), workers=1, tries=3, deal_epochs=True, samples=24).join("a")
    for _ in range(5):
        scene.announce("a", **OF_DATA)
        assert running(scene)
    found = failure(scene.announce("a", **OF_DATA))
    assert isinstance(found, BadBatchError)
    assert (found.samples, found.tensor) == ((7,), "the input")
    assert "the input of sample 7 is not finite, nor is any of the last 6 batches; mend or remove" in str(found)


def test_a_batch_is_left_out_after_its_tries_and_the_log_names_its_samples(open_scene: Open) -> None:
    scene = open_scene(tries=2, deal_epochs=True).join("a", "b")
    scene.announce("a", **OF_LOSS).announce("b")
    assert not scene.logged("bad batch")
    scene.announce("a").announce("a").announce("b", **OF_LOSS)
    (record,) = scene.logged("bad batch")
    assert (record["tries"], record["samples"], record["tensor"]) == (2, [7], "the loss")
    assert (record["epoch"], record["batch"], record["text"]) == (0, 0, "the loss of sample 7 is not finite")
    assert running(scene)


def test_the_last_batch_of_the_epochs_asked_for_may_be_left_out(open_scene: Open) -> None:
    scene = open_scene(tries=1, deal_epochs=True, workers=1, samples=8, stop=Stop(epochs=1)).join("a")
    scene.announce("a").announce("a", **OF_LOSS)
    assert scene.coordinator.ending._outcome == "epochs"
    assert scene.coordinator.state.epochs_done == 1


def test_a_gradient_that_comes_after_the_last_commit_is_no_bad_batch(open_scene: Open) -> None:
    scene = open_scene(workers=1, deal_epochs=True).join("a")
    scene.handle(StopRequested("enough"))
    scene.announce("a", **NAN)
    assert not scene.logged("bad batch")


def test_a_job_that_wants_it_ends_at_a_bad_batch(open_scene: Open) -> None:
    scene = open_scene(tries=2, deal_epochs=True, ends_at_bad_batch=True).join("a", "b")
    scene.announce("a", **OF_LOSS).announce("b").announce("a").announce("a").announce("b", **OF_LOSS)
    assert isinstance(failure(scene), BadBatchError)
    assert "bad_batches=skip" in str(failure(scene))
