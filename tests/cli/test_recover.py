"""``psplatform recover``: which job goes on, and what is refused, with nothing started and nothing lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zarr

from psplatform.core.plan import Stop
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.job import Job
from psplatform.jobs.network import Fabric, Network
from psplatform.jobs.replication import Bounded, NoReplication
from psplatform.replication.stores.store import create_run, describe_run, update_run

Refused = Callable[..., str]
DESCRIPTION: dict[str, Any] = {"run": "digits-bsp-1a2b3c", "workload": "digits"}


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Return the store of a run whose cluster is gone."""
    path = str(tmp_path / "my.zarr")
    create_run(path, {**DESCRIPTION, "job": Job(workload="digits").to_plain(), "embedded": True})
    update_run(path, outcome="failed")
    return path


def test_a_place_without_a_run_is_refused(refused: Refused, tmp_path: Path) -> None:
    assert "there is no run in" in refused("recover", str(tmp_path / "nothing.zarr"))


def test_a_foreign_store_is_named_as_such(refused: Refused, tmp_path: Path) -> None:
    zarr.open_group(str(tmp_path / "foreign.zarr"), mode="w")
    assert "holds no run of psplatform" in refused("recover", str(tmp_path / "foreign.zarr"))


def test_a_newer_format_is_not_guessed_at(refused: Refused, store: str) -> None:
    root = zarr.open_group(store, mode="r+")
    root.attrs["psplatform"] = {**DESCRIPTION, "format": 99}
    assert "has format 99; this psplatform reads format" in refused("recover", store)


@pytest.mark.parametrize("outcome", ["failed", "updates"])
def test_a_run_without_a_checkpoint_cannot_go_on(refused: Refused, store: str, outcome: str) -> None:
    """Whether it has reached its end or not: a later one would be of no use."""
    update_run(store, outcome=outcome)
    assert "holds no complete checkpoint" in refused("recover", store)
    assert describe_run(store)["outcome"] == outcome


def test_a_local_url_and_home_name_the_same_store(
    refused: Refused, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (f"file://{store}".replace("my", "%6Dy"), "~/my.zarr"):
        assert "holds no complete checkpoint" in refused("recover", name)


def test_a_run_that_has_reached_its_end_needs_a_later_one(
    refused: Refused, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psplatform.client.runs.recovery.load_checkpoint", lambda *arguments: None)
    monkeypatch.setattr("psplatform.client.runs.recovery.require_state", lambda *arguments: None)
    update_run(store, outcome="updates")
    assert "has reached its end (updates); give a later one" in refused("recover", store)


REACHED: dict[str, Any] = {"version": 80, "samples_applied": 1000, "bad_batches": [1, 20], "seconds": 9.5}


@pytest.mark.parametrize(
    ("outcome", "options", "words"),
    [
        ("updates", ("--updates", "10"), "has reached its end (10 updates): it goes on from version 80; give a later"),
        ("updates", ("--updates", "80"), "has reached its end (80 updates)"),
        ("stopped", ("--updates", "80"), "has reached its end (80 updates)"),
        (None, ("--updates", "79"), "has reached its end (79 updates): it goes on from version 80"),
        ("failed", ("--updates", "79"), "has reached its end (79 updates)"),
        ("epochs", ("--epochs", "2"), "has reached its end (2 epochs): it goes on from version 80, after 2.04 epochs"),
        ("seconds", ("--seconds", "9"), "has reached its end (9 seconds): it goes on from version 80, after 9.5 s"),
    ],
)
def test_an_end_that_was_reached_already_is_refused(
    refused: Refused,
    store: str,
    no_cluster: None,
    monkeypatch: pytest.MonkeyPatch,
    outcome: str | None,
    options: tuple[str, ...],
    words: str,
) -> None:
    """Before anything is started: nothing would be trained, and the term would be raised."""
    found = SimpleNamespace(number=1, state=REACHED)
    monkeypatch.setattr("psplatform.client.runs.recovery.load_checkpoint", lambda *arguments: found)
    monkeypatch.setattr("psplatform.client.runs.recovery.require_state", lambda *arguments: None)
    monkeypatch.setattr("psplatform.client.runs.recovery._require_over", lambda *arguments, **options: None)
    monkeypatch.setattr("psplatform.client.runs.recovery.start", lambda *arguments: pytest.fail("was started"))
    update_run(store, outcome=outcome, samples=500)
    before = describe_run(store)
    assert words in refused("recover", store, *options)
    assert describe_run(store) == before


@pytest.mark.parametrize(
    ("outcome", "options"),
    [
        (None, ("--updates", "80")),
        ("failed", ("--updates", "80")),
        ("updates", ("--updates", "81")),
        ("epochs", ("--epochs", "2.1")),
    ],
)
def test_a_later_end_or_one_that_a_lost_run_did_not_save_at_is_taken(
    refused: Refused, store: str, monkeypatch: pytest.MonkeyPatch, outcome: str | None, options: tuple[str, ...]
) -> None:
    def seen_enough(*arguments: Any) -> None:
        raise ConfigurationError("seen enough", field="job")

    found = SimpleNamespace(number=1, state=REACHED)
    monkeypatch.setattr("psplatform.client.runs.recovery.load_checkpoint", lambda *arguments: found)
    monkeypatch.setattr("psplatform.client.runs.recovery.require_state", lambda *arguments: None)
    monkeypatch.setattr("psplatform.client.runs.recovery._require_over", lambda *arguments, **options: None)
    monkeypatch.setattr("psplatform.client.runs.recovery.start", seen_enough)
    update_run(store, outcome=outcome, samples=500)
    assert "seen enough" in refused("recover", store, *options)


@pytest.mark.parametrize(
    ("option", "words"),
    [(("--checkpoint", "7"), "checkpoint 7"), (("-o", "bound"), "KEY=VALUE")],
)
def test_a_bad_option_is_named(refused: Refused, store: str, option: tuple[str, str], words: str) -> None:
    assert words in refused("recover", store, *option)


def test_more_shards_than_parameters_are_refused_before_anything_is_started(
    refused: Refused, store: str, no_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(number=1, state={"version": 7})
    monkeypatch.setattr("psplatform.client.runs.recovery.load_checkpoint", lambda *arguments: found)
    monkeypatch.setattr("psplatform.client.runs.recovery.require_state", lambda *arguments: None)
    update_run(store, job=Job(workload="mlp").to_plain())
    before = describe_run(store)
    assert "shards must be at most" in refused("recover", store, "--shards", "4000")
    assert describe_run(store) == before


def test_a_model_of_ones_own_is_asked_for_with_the_call_that_takes_it(
    refused: Refused, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psplatform.client.runs.recovery.load_checkpoint", lambda *arguments: None)
    monkeypatch.setattr("psplatform.client.runs.recovery.require_state", lambda *arguments: None)
    update_run(store, job=Job(model=list, loss=min, data=[1]).to_plain())
    assert "ps.recover(store, model=..., loss=..., data=...)" in refused("recover", store)


# --- what the options change ---


@pytest.fixture
def recovered(store: str, psplatform: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    """Return the job that goes on with these options, where one with those fields has ended."""

    def run(fields: dict[str, Any], *options: str, outcome: str = "failed") -> Job:
        plain = Job(workload="digits", **fields).to_plain()
        update_run(store, job=plain, outcome=outcome)
        jobs: list[Job] = []

        def take(
            store: str, client: Any, *, checkpoint: Any, ask_store_scheduler: bool, report: Any, **changes: Any
        ) -> None:
            jobs.append(Job.from_plain(plain, **changes))
            raise ConfigurationError("seen enough", field="job")

        monkeypatch.setattr("psplatform.client.runs.recovery.recover", take)
        result = psplatform("recover", store, *options)
        assert "seen enough" in result.output
        return jobs[0]

    return run


Recovered = Callable[..., Job]
ENDS = Stop(updates=50, target_accuracy=0.97)


def test_conditions_to_stop_are_added_to_those_before(recovered: Recovered) -> None:
    assert recovered({"stop": ENDS}).stop == ENDS
    assert recovered({"stop": ENDS}, "--updates", "800").stop == Stop(updates=800, target_accuracy=0.97)
    assert recovered({"stop": ENDS}, "--seconds", "9").stop == Stop(updates=50, target_accuracy=0.97, seconds=9)


def test_a_condition_that_has_ended_the_run_does_not_end_it_again(recovered: Recovered) -> None:
    stop = Stop(epochs=3, target_accuracy=0.97)
    job = recovered({"stop": stop}, "--updates", "800", outcome="epochs")
    assert job.stop == Stop(updates=800, target_accuracy=0.97)
    job = recovered({"stop": stop}, "--updates", "800", outcome="reached target")
    assert job.stop == Stop(updates=800, epochs=3)


def test_parameters_of_the_policy_change_one_by_one(recovered: Recovered) -> None:
    """With another policy, those before hold no longer."""
    before = {"policy": "backup", "policy_options": {"k": 2, "busy": "abort"}}
    assert recovered(before, "-o", "k=1").policy_options == {"k": "1", "busy": "abort"}
    job = recovered(before, "--policy", "ssp", "-o", "bound=4")
    assert (job.policy, job.policy_options) == ("ssp", {"bound": "4"})


def test_what_protects_the_run_can_change(recovered: Recovered) -> None:
    """As with train, option by option; what was not asked for before can still be done without."""
    assert not recovered({}).replication_asked
    before = {"replication": Bounded(max_divergence=0.5, replicas=2), "checkpoints": Checkpoints(every_updates=9)}
    job = recovered(before)
    assert (job.replication, job.checkpoints) == (before["replication"], before["checkpoints"])
    job = recovered(before, "--replicas", "1", "--keep-checkpoints", "5")
    assert (job.replication, job.checkpoints) == (Bounded(max_divergence=0.5), Checkpoints(every_updates=9, keep=5))
    assert job.replication_asked
    options = ("--max-divergence", "8updates", "--on-replica-loss", "pause", "--checkpoint-every", "10s")
    job = recovered({"checkpoints": Checkpoints.never()}, *options)
    assert job.replication == Bounded(max_divergence=8, unit="updates", on_replica_loss="pause")
    assert job.checkpoints == Checkpoints(every_seconds=10)
    assert recovered(before, "--replication", "none").replication == NoReplication()


@pytest.mark.parametrize("option", [(), ("--fabric",), ("--no-fabric",)])
def test_a_store_whose_job_says_nothing_sensible_of_its_network_is_refused(
    refused: Refused, store: str, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.setattr(
        "psplatform.client.runs.recovery.load_checkpoint", lambda *arguments: SimpleNamespace(number=1, state={})
    )
    monkeypatch.setattr("psplatform.client.runs.recovery.require_state", lambda *arguments: None)
    update_run(store, job={**Job(workload="digits").to_plain(), "network": "fast"})
    assert "network" in refused("recover", store, *option)


def test_transfers_are_planned_from_now_on_or_no_longer(recovered: Recovered) -> None:
    """What the job says of the fabric stays where it had one."""
    fabric = Network(Fabric(tick_s=0.5))
    assert recovered({}).network == Network()
    assert recovered({}, "--fabric").network == Network(Fabric())
    before = {"network": fabric, "policy": "asp", "workers": 2}
    assert recovered(before).network == recovered(before, "--fabric").network == fabric
    assert recovered(before, "--no-fabric").network == Network()
