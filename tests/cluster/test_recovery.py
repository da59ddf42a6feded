"""Runs that go on from their store: bit for bit what they would have become, or refused with a word."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zarr
from click.testing import CliRunner
from distributed import Client, LocalCluster
from torch import nn

import psplatform as ps
from psplatform.cli.main import cli
from psplatform.client.runs.attaching import runs_on
from psplatform.client.runs.recovery import recover
from psplatform.core.coordination.shards.checkpoints import NUMBERS_PER_TERM
from psplatform.errors import CheckpointError, ConfigurationError, StoreError
from psplatform.replication.checkpoints.manifest import MANIFEST
from psplatform.replication.checkpoints.parts import FOLDER, folder_of
from psplatform.replication.checkpoints.retention import checkpoints_of, load_checkpoint
from psplatform.replication.stores.checksums import fingerprint
from psplatform.replication.stores.store import describe_run

Start = Callable[..., ps.Run]
Until = Callable[..., None]
Fields = dict[str, Any]
LIMIT_S = 180.0
EVERY = 10
ENDLESS = ps.Stop(updates=10**9)


@pytest.fixture(autouse=True)
def _sent_whole(by_value: Callable[[str], None]) -> None:
    by_value(__name__)


@pytest.fixture
def digits() -> Fields:
    """Fields of a job that trains a small network on digits with momentum until it is stopped."""
    return {
        "workload": "digits",
        "optimizer": ps.SGD(lr=0.05, momentum=0.9),
        "workers": 2,
        "shards": 2,
        "stragglers": "constant:seconds=0.01",
        "checkpoints": ps.Checkpoints(every_updates=EVERY),
        "stop": ENDLESS,
        "evaluate_every": None,
        "torch_threads": 1,
        "seed": 11,
    }


@pytest.fixture
def saved(start: Start, until: Until) -> Callable[..., ps.Run]:
    """Train until there is a checkpoint of that version or a later one, and stop."""

    def train(fields: Fields, version: int = EVERY) -> ps.Run:
        run = start(**fields)
        until(lambda: any(one.version >= version for one in checkpoints_of(run.store)), f"one of version {version}")
        return stopped(run)

    return train


def stopped(run: ps.Run) -> ps.Run:
    run.stop("seen enough")
    assert run.wait(LIMIT_S)["outcome"] == "stopped"
    return run


def bits(arrays: dict[str, Any]) -> dict[str, bytes]:
    """Return arrays as bytes: equal only where every bit is."""
    return {name: array.tobytes() for name, array in arrays.items()}


def whole_state(store: str, version: int) -> dict[str, dict[str, bytes]]:
    """Return the optimiser's state by slot, and the parameters under the empty name, of a checkpoint."""
    number = next(one.number for one in checkpoints_of(store) if one.version == version)
    found = load_checkpoint(store, number)
    return {"": bits(found.tensors()), **{slot: bits(arrays) for slot, arrays in found.slots().items()}}


@pytest.mark.parametrize("shards", [2, 3], ids=["as many shards", "more"])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(
    start: Start, saved: Callable[..., ps.Run], until: Until, client: Client, digits: Fields, shards: int
) -> None:
    """The same parameters and the same momentum, bit for bit, as a run that nobody stopped."""
    store = saved(digits).store
    cut = checkpoints_of(store)[-1].version + EVERY
    again = recover(store, client, shards=shards, stop=ENDLESS)
    until(lambda: cut in {one.version for one in checkpoints_of(store)}, "the first checkpoint since")
    stopped(again)
    arrays, end = again.parameters()
    undisturbed = start(**{**digits, "stop": ps.Stop(updates=end), "checkpoints": ps.Checkpoints.never()})
    undisturbed.wait(LIMIT_S)
    assert bits(undisturbed.parameters()[0]) == bits(arrays)
    same = saved({**digits, "checkpoints": ps.Checkpoints(every_updates=cut)}, cut)
    assert set(whole_state(store, cut)) == {"", "momentum"}
    assert whole_state(same.store, cut) == whole_state(store, cut)


def numbers(store: str) -> list[int]:
    return [one.number for one in checkpoints_of(store)]


def test_without_its_log_a_run_goes_on_with_higher_numbers(
    saved: Callable[..., ps.Run], until: Until, client: Client, digits: Fields
) -> None:
    """A damaged log is to be moved away; the checkpoints say how often the run was recovered."""
    store = saved(digits).store
    for name in ("away", "away too"):
        newest = numbers(store)[-1]
        again = recover(store, client, stop=ENDLESS)
        until(lambda newest=newest: numbers(store)[-1] > newest, "a checkpoint with a number above all before")
        stopped(again)
        (Path(store) / "log").rename(Path(store) / name)
    assert numbers(store)[-1] // NUMBERS_PER_TERM == describe_run(store)["term"] == 3


# --- what is refused ---


@pytest.fixture
def elsewhere() -> Iterator[Client]:
    """Return a client of another cluster, on which nothing can run."""
    with (
        LocalCluster(
            n_workers=0, dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}, host="127.0.0.1"
        ) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


def test_a_run_that_goes_on_elsewhere_is_refused(start: Start, until: Until, elsewhere: Client, digits: Fields) -> None:
    """The scheduler that its store names is asked, whichever the new one is to run on."""
    run = start(**digits)
    until(lambda: len(checkpoints_of(run.store)) >= 1, "a checkpoint")
    with pytest.raises(ConfigurationError, match=f"run {run.run} still goes on; stop it, or attach to it instead"):
        recover(run.store, elsewhere)
    stopped(run)


def test_of_two_recoveries_at_the_same_time_one_goes_on(
    saved: Callable[..., ps.Run], until: Until, client: Client, digits: Fields
) -> None:
    """Both have found the run over; the one that would begin later is refused, and leaves the other alone."""
    store = saved(digits).store
    first: list[ps.Run] = []

    def overtake(words: str) -> None:
        if not first:
            first.append(recover(store, client, stop=ENDLESS))

    with pytest.raises(ConfigurationError, match="another program has begun to go on with the run"):
        recover(store, client, report=overtake, stop=ENDLESS)
    assert "outcome" not in describe_run(store)
    until(lambda: first[0].status()["phase"] == "running", "the other has begun")
    stopped(*first)


def test_what_could_not_begin_can_be_recovered_again(
    saved: Callable[..., ps.Run], until: Until, client: Client, digits: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that a process does not see: the description stays as it was, and nobody is kept from going on."""
    store = saved(digits).store
    before = describe_run(store)
    with monkeypatch.context() as patch:
        patch.setattr("psplatform.client.launch.require_visible_store", unseen)
        with pytest.raises(StoreError, match="nobody sees it"):
            recover(store, client, stop=ENDLESS)
    assert describe_run(store) == before
    again = recover(store, client, stop=ENDLESS)
    until(lambda: again.status()["phase"] == "running", "it has begun")
    stopped(again)


async def unseen(client: Client, store: str, addresses: Sequence[str]) -> None:
    raise StoreError("nobody sees it", store=store)


def content(store: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(store).rglob("*")) if path.is_file()}


@pytest.fixture
def refused(client: Client) -> Callable[..., StoreError | ConfigurationError]:
    """Try to recover, in Python and from the command line; return the error, which both must say in one sentence.

    Nothing must have been started by then, and the store must be as it was.
    """

    def run(store: str, **fields: Any) -> StoreError | ConfigurationError:
        before = content(store)
        with pytest.raises((StoreError, ConfigurationError)) as caught:
            recover(store, client, **fields)
        if not fields:
            scheduler: Any = client.scheduler
            said = CliRunner().invoke(cli, ["recover", store, "--scheduler", scheduler.address])
            assert (said.exit_code, f"Error: {caught.value}\n" in said.output) == (2, True), said.output
        assert "\n" not in str(caught.value)
        assert runs_on(client) == []
        assert content(store) == before
        return caught.value

    return run


Refusal = Callable[..., StoreError | ConfigurationError]


def test_a_place_without_a_run_is_refused(refused: Refusal, tmp_path: Path) -> None:
    """Nothing, an empty folder, a file, or somebody else's Zarr group."""
    assert "there is no run in" in str(refused(str(tmp_path / "nothing.zarr")))
    (tmp_path / "empty.zarr").mkdir()
    assert "there is no run in" in str(refused(str(tmp_path / "empty.zarr")))
    (tmp_path / "file.zarr").write_text("my notes")
    assert "file.zarr" in str(refused(str(tmp_path / "file.zarr")))
    zarr.open_group(str(tmp_path / "foreign.zarr"), mode="w")
    assert "holds no run of psplatform" in str(refused(str(tmp_path / "foreign.zarr")))


def in_format(data: bytes, format_: int) -> bytes:
    """Return a manifest as a psplatform of that format would have sealed it."""
    _, line, _ = data.split(b"\n")
    head = {"psplatform_checkpoint": format_, "blake2b": fingerprint(b"%d\n" % format_ + line)}
    return json.dumps(head).encode() + b"\n" + line + b"\n"


def test_what_a_newer_psplatform_wrote_is_not_guessed_at(
    refused: Refusal, saved: Callable[..., ps.Run], digits: Fields
) -> None:
    """A checkpoint of a newer format or a whole store: an update of psplatform is asked for."""
    store = saved(digits).store
    manifest = Path(store) / FOLDER / folder_of(checkpoints_of(store)[-1].number) / MANIFEST
    whole = manifest.read_bytes()
    manifest.write_bytes(in_format(whole, 99))
    assert "has format 99; this psplatform reads formats up to 3, update it" in str(refused(store))
    manifest.write_bytes(whole)
    root = zarr.open_group(store, mode="r+")
    root.attrs["psplatform"] = {**describe_run(store), "format": 99}
    assert "has format 99; this psplatform reads format 1, update it" in str(refused(store))


def test_where_the_newest_checkpoint_is_damaged_the_one_before_is_offered(
    refused: Refusal, saved: Callable[..., ps.Run], client: Client, digits: Fields
) -> None:
    """One flipped byte of one array; from the one before, the run goes on."""
    store = saved(digits, 2).store
    before, newest = checkpoints_of(store)[-2:]
    model = Path(store) / FOLDER / folder_of(newest.number) / "model"
    chunk = next(path for path in sorted(model.rglob("c/**/*")) if path.is_file())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    error = refused(store)
    assert isinstance(error, CheckpointError)
    assert (error.number, error.previous) == (newest.number, before.number)
    assert f"recover from checkpoint {before.number}, the last complete one before it" in str(error)
    scheduler: Any = client.scheduler
    end = str(newest.version + 1)
    words = ["recover", store, "--scheduler", scheduler.address, "--checkpoint", str(before.number), "--updates", end]
    said = CliRunner().invoke(cli, [*words, "--json"])
    assert said.exit_code == 0, said.output
    summary = json.loads(said.stdout.splitlines()[-1])
    assert (summary["outcome"], summary["updates"]) == ("updates", newest.version + 1)


def wider() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2))


def test_another_model_is_refused_and_what_differs_is_named(
    refused: Refusal, saved: Callable[..., ps.Run], small: Fields
) -> None:
    """The first tensor, with both shapes; the same holds of an optimiser that keeps something else."""
    endless = {**small, "stop": ENDLESS, "checkpoints": ps.Checkpoints(every_updates=EVERY)}
    store = saved(endless).store
    code = {name: small[name] for name in ("loss", "data", "test")}
    error = refused(store, model=wider, **code)
    shapes = "model parameter '0.weight' is float32[24, 2] in the job and float32[16, 2] in the checkpoint"
    assert str(error).startswith(f"{shapes}; recover with the model that the checkpoint was made with")
    error = refused(store, model=small["model"], optimizer=ps.Adam(), **code)
    assert str(error).startswith("the optimizer keeps exp_avg and exp_avg_sq in the job and momentum in the checkpoint")
