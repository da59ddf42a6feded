"""Whatever is wrong with a command: one sentence with the remedy, exit code 2, nothing started, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from psplatform.replication.stores.store import create_run

pytestmark = pytest.mark.usefixtures("no_cluster")

Refused = Callable[..., str]

BAD_OPTIONS = [
    ("", "Missing argument"),
    ("digit", 'There is no workload "digit"; did you mean "digits"?'),
    ("digits extra", "unexpected extra argument"),
    ("digits --polcy bsp", "No such option"),
    ("digits --policy bps", "unknown policy 'bps'"),
    ("digits --policy backup -o k", "write options as KEY=VALUE, not 'k'"),
    ("digits --policy backup -o =3", "write options as KEY=VALUE, not '=3'"),
    ("digits --policy backup -o k=0", "k"),
    ("digits --policy backup -o k=two", "k"),
    ("digits --policy backup -o q=2", "policy 'backup' has no parameter \"q\"; choose from k"),
    ("digits --policy backup -o k=5 --workers 3", "k must be at most the number of workers: k = 5, workers = 3"),
    ("digits --policy backup -o k=5", "k must be at most the number of workers"),
    ("digits --policy ssp -o bound=-1", "bound"),
    ("digits --policy asp -o rate=linear", "rate"),
    ("digits --workers 0", "workers"),
    ("digits --workers many", "workers"),
    ("digits --workers 1.5", "workers"),
    ("digits --workers 3 --max-workers 2", "max_workers must be at least workers: 2 < 3"),
    ("digits --shards 0", "shards"),
    ("digits --shards 5000", "shards"),
    ("mlp --shards 4000", "shards must be at most"),
    ("digits --batch-size 0", "batch_size"),
    ("digits --batch-size 100000", "batch_size must be at most the number of samples: 100000 > 1437"),
    ("digits --updates 0", "stop.updates must be an int of at least 1, not 0"),
    ("digits --updates x", "'--updates'"),
    ("digits --epochs nan", "stop.epochs must be a finite number above 0, not nan"),
    ("digits --seconds inf", "stop.seconds must be a finite number above 0, not inf"),
    ("digits --target-accuracy 2", "stop.target_accuracy must be a finite number above 0 and at most 1, not 2.0"),
    ("digits --target-loss nan", "stop.target_loss must be a finite number"),
    ("digits --evaluate-every 0", "evaluate_every"),
    ("digits --lr -1", "lr"),
    ("digits --lr nan", "lr"),
    ("digits --optimizer sgdd", "sgdd"),
    ("digits --optimizer adam --momentum 0.9", "momentum"),
    ("digits --schedule linear", "linear"),
    ("digits --clip-norm 0", "clip_norm"),
    ("digits --sampling once", "sampling"),
    ("digits --stragglers slow", "slow"),
    ("digits --stragglers pareto:scale=-1,shape=2", "scale"),
    ("digits --stragglers trace:/nowhere.csv", "cannot read the trace /nowhere.csv"),
    ("digits --slow-servers 3", "slow servers"),
    ("digits --replication cain", 'replication has no mode "cain"; did you mean "chain"?'),
    ("digits --max-divergence far", 'max_divergence="far" is no bound; write a norm such as 0.5'),
    ("digits --max-divergence 0", "max_divergence must be a finite number above 0, not 0.0; write the mode chain"),
    ("digits --max-divergence nan", "must be a finite number above 0"),
    ("digits --max-divergence 1.5u", "updates such as 8updates"),
    (
        "digits --replication chain --max-divergence 8u",
        'replication chain has no "max_divergence"; take the mode bounded',
    ),
    ("digits --replication none --replicas 2", 'replication none has no "replicas"; take the mode chain or bounded'),
    ("digits --replicas 0", "replicas must be an int from 1 to 64, not 0"),
    ("digits --replicas many", "replicas must be an int from 1 to 64, not 'many'"),
    ("digits --replication-source me", "source must be 'server' or 'workers', not 'me'"),
    ("digits --replication-source workers --replication-target store", "workers cannot send to the store"),
    ("digits --replication-target disk", "target must be 'replica' or 'store', not 'disk'"),
    ("digits --replication-target store --replicas 2", "the store holds one copy, not 2"),
    ("digits --on-replica-loss stop", "on_replica_loss must be 'continue' or 'pause', not 'stop'"),
    ("digits --checkpoint-every often", 'every="often" is not known; write updates such as 200'),
    ("digits --checkpoint-every 0", "every_updates must be an int of at least 1, not 0"),
    ("digits --checkpoint-every 0s", "every_seconds must be a finite number above 0, not 0.0"),
    ("digits --checkpoint-every none --keep-checkpoints 2", "nothing is kept where none is written"),
    ("digits --keep-checkpoints -1", "keep must be an int of at least 0, not -1"),
    ("digits --keep-checkpoints few", "keep must be an int of at least 0, not 'few'"),
    ("digits --device gpu", "device 'gpu' is not to be had"),
    ("digits --transport tcp", "transport"),
    ("digits --fabric --policy psp", "transfers cannot be planned where the policy decides block by block; choose"),
    ("digits --fabric=0.1", "--fabric"),
    ("digits --seed -1", "seed"),
    ("digits --seed one", "seed"),
    ("digits --store carrier-pigeon://coop", "carrier-pigeon"),
    ("digits -w samples=10", "samples"),
    ("mlp -w samples=few", "samples"),
    ("mlp -w samples=1", "samples"),
    ("mnist", "folder"),
    ("mnist -w folder=/nowhere", "/nowhere"),
    ("nowhere.yaml", "cannot read the job file nowhere.yaml"),
    ("digits --scheduler nonsense://x", "no scheduler can be at nonsense://x"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_OPTIONS)
def test_a_wrong_option_of_train_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused("train", *arguments.split())
    assert list(tmp_path.iterdir()) == []


BAD_FILES = [
    ("", "must be a mapping of a job's fields"),
    ("- digits", "must be a mapping of a job's fields"),
    ("workload: [", "cannot read the job file"),
    ("workload: digits\nworkload-: : x", "cannot read the job file"),
    ("{}", "say what to train in one way"),
    ("workload: digts", 'There is no workload "digts"; did you mean "digits"?'),
    ("workload: [digits]", "There is no workload"),
    ("workload: digits\nwrokers: 3", 'a job has no field "wrokers"; did you mean "workers"?'),
    ("workload: digits\nxyz: 3", 'a job has no field "xyz"; choose from model, loss'),
    ("workload: digits\n3: 4", 'a job has no field "3"'),
    ("workload: digits\nworkers: many", "workers"),
    ("workload: digits\nworkers: [2]", "workers"),
    ("workload: digits\npolicy: 3", "policy must be a name or a Policy, not 3"),
    ("workload: digits\npolicy: backup\npolicy_options: 3", "policy_options"),
    ("workload: digits\npolicy: backup\npolicy_options: [k]", "policy_options"),
    ("workload: digits\npolicy: backup\npolicy_options: {q: 3}", 'has no parameter "q"; choose from k'),
    ("workload: digits\npolicy: backup\npolicy_options: {k: [1]}", "k"),
    ("workload: mlp\noptions: 3", "options"),
    ("workload: mlp\noptions: {samples: []}", "samples"),
    ("workload: digits\nnetwork: fabric", "network must be a mapping of names to values, not 'fabric'"),
    ("workload: digits\nnetwork: {fabrics: {}}", 'network has no "fabrics"; did you mean "fabric"?'),
    ("workload: digits\nnetwork: {fabric: {tick_s: 0}}", "tick_s must be a float above 0 and at most 60, not 0"),
    ("workload: digits\nstop: 100", "stop"),
    ("workload: digits\nstop: [100]", "stop"),
    ("workload: digits\nstop: {update: 100}", 'stop has no "update"; did you mean "updates"?'),
    ("workload: digits\nstop: {updates: many}", "stop.updates"),
    ("workload: digits\nstop: {updates: 1.5}", "stop.updates must be an int of at least 1, not 1.5"),
    ("workload: digits\noptimizer: 3", "optimizer"),
    ("workload: digits\noptimizer: [sgd]", "optimizer"),
    ("workload: digits\noptimizer: sgdd", "sgdd"),
    ("workload: digits\noptimizer: {name: sgd, lr: fast}", "lr"),
    ("workload: digits\noptimizer: {name: sgd, rl: 1}", "rl"),
    ("workload: digits\nschedule: {name: step, period: 3}", "schedule"),
    ("workload: digits\nschedule: 3", "schedule"),
    ("workload: digits\nstragglers: 3", "stragglers"),
    ("workload: digits\nslow_servers: 3", "slow_servers"),
    ("workload: digits\nresources: {client: {GPU: 1}}", "resources"),
    ("workload: digits\nresources: 3", "resources"),
    ("workload: digits\nreplication: hot", 'replication has no mode "hot"'),
    ("workload: digits\nreplication: 3", "replication must be a mapping of names to values, not 3"),
    ("workload: digits\nreplication: {mode: bounded, divergence: 1}", 'bounded has no "divergence"'),
    ("workload: digits\nreplication: {unit: norm}", "needs a bound; give max_divergence"),
    ("workload: digits\nreplication: {max_divergence: [1]}", "must be a finite number above 0"),
    ("workload: digits\ncheckpoints: often", 'every="often" is not known'),
    ("workload: digits\ncheckpoints: [200]", "checkpoints must be a mapping of names to values, not [200]"),
    ("workload: digits\ncheckpoints: true", "checkpoints must be such as ps.Checkpoints(), not True"),
    ("workload: digits\ncheckpoints: {every: 5, keep: few}", "keep must be an int of at least 0, not 'few'"),
    ("workload: digits\ncheckpoints: {every_update: 5}", 'checkpoints have no "every_update"'),
    ("workload: digits\nscheduler: 3", "scheduler"),
    ("workload: digits\nstore: [a]", "store"),
    ("workload: digits\nseed: 1.5", "seed"),
    ("workload: digits\nmodel: x", "say what to train in one way"),
    ("model: x", "a model needs its loss and data"),
    (
        "{model: resnet18, loss: mse, data: x}",
        "model must be an nn.Module or a callable that builds one, not 'resnet18'",
    ),
    ("workload: mlp\nshards: 4000", "shards must be at most"),
    ("workload: digits\nworkers: true", "workers must be an int from 1 to 1000000, not True"),
    ("workload: digits\nclip_norm: off", "clip_norm must be a float above 0, not False"),
    ("workload: digits\nstop: {updates: 1.5e0}", "stop.updates must be an int of at least 1, not 1.5"),
    ("workload: digits\nstore: 2024-13-45", "cannot read the job file job.yaml: month must be in 1..12"),
    ("workload: digits\nstore: 1e3", "store must be a str, not 1000.0"),
    ("workload: digits\noptimizer: {lr: -1e-3}", "lr must be a finite number of at least 0, not -0.001"),
]


@pytest.mark.parametrize(("content", "sentence"), BAD_FILES)
def test_a_wrong_job_file_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(content)
    assert sentence in refused("train", "job.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


def test_a_job_file_that_is_no_text_is_refused(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"\xff\xfe\x00")
    assert "cannot read the job file" in refused("train", str(tmp_path / "job.yaml"))


def test_a_store_that_holds_a_run_is_refused_before_anything_is_started(refused: Refused, tmp_path: Path) -> None:
    create_run(str(tmp_path / "run.zarr"), {"run": "older"})
    said = refused("train", "digits", "--store", str(tmp_path / "run.zarr"))
    assert "already holds the run older; choose another store or remove it" in said


BAD_COMMANDS = [
    ("simulate mlp --shards 4000", "shards must be at most"),
    ("runs nowhere.zarr", "there is no run in nowhere.zarr; check the path"),
    ("runs carrier-pigeon://coop", "carrier-pigeon"),
    ("runs --scheduler nonsense://x", "no scheduler can be at nonsense://x"),
    ("attach", "Missing argument"),
    ("attach nowhere.zarr", "there is no run in nowhere.zarr; check the path"),
    ("attach carrier-pigeon://coop", "carrier-pigeon"),
    ("attach some-run --scheduler nonsense://x", "no scheduler can be at nonsense://x"),
    ("policies all", "unexpected extra argument"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD_COMMANDS)
def test_a_wrong_argument_of_another_command_is_named(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(*arguments.split())
