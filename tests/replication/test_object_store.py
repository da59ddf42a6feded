"""Checkpoints in an object store: a server that speaks S3 on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr

from psplatform.errors import CheckpointError, ConfigurationError, StoreError
from psplatform.replication.checkpoints.retention import (
    checkpoints_of,
    load_checkpoint,
    newest_whole,
    next_number,
    prune,
)
from psplatform.replication.stores.claims import claim_recovery
from psplatform.replication.stores.models import load_model
from psplatform.replication.stores.store import create_run, describe_run, require_free

moto = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket_run(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A store that holds a run, in a bucket of its own; the way to it is fsspec's configuration, as users set it."""
    options = {"key": "test", "secret": "test", "endpoint_url": endpoint}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    bucket = request.node.name.replace("_", "-")[:60].rstrip("-")
    fsspec.filesystem("s3").mkdir(bucket)
    store = f"s3://{bucket}/runs/digits.zarr"
    create_run(store, {"run": "digits-bsp-1a2b3c"})
    return store


def test_a_checkpoint_in_a_bucket(sample: Any, bucket_run: str) -> None:
    """Written in parts, sealed, listed, read for another number of shards, and read with plain Zarr."""
    assert next_number(bucket_run) == 1
    with pytest.raises(StoreError, match="holds no complete checkpoint"):
        newest_whole(bucket_run)
    sample.save(bucket_run, 1, 4)
    checkpoint = newest_whole(bucket_run)
    assert sample.version_of(checkpoint) == 4
    layout = sample.layout(2)
    for key, vector in sample.state(4, layout, 1).items():
        assert checkpoint.shard_state(layout, 1, sample.slots)[key].tolist() == vector.tolist()
    model = zarr.open_group(bucket_run, mode="r", path="checkpoints/00000001/model")
    weight: Any = model["fc.1.weight"]
    assert np.asarray(weight[...]).tolist() == sample.tensors(4)["fc.1.weight"].tolist()


def test_the_old_go_and_the_damaged_are_noticed_in_a_bucket(sample: Any, bucket_run: str) -> None:
    """Whoever wrote or removed them: listings are never taken from a cache."""
    for number in (1, 2, 3):
        sample.save(bucket_run, number, 10 * number, shards=1)
    assert prune(bucket_run, 2, writing=None) == [1]
    assert [summary.number for summary in checkpoints_of(bucket_run)] == [2, 3]
    another_process = fsspec.filesystem("s3", skip_instance_cache=True)
    another_process.pipe_file(f"{bucket_run}/checkpoints/00000007/fragments/0/0", b"begun elsewhere")
    assert next_number(bucket_run) == 8
    another_process.rm(f"{bucket_run}/checkpoints/00000003/model/fc.1.bias/c/0")
    with pytest.raises(CheckpointError, match="recover from checkpoint 2,"):
        load_checkpoint(bucket_run)
    assert sample.version_of(newest_whole(bucket_run)) == 20


def test_a_bucket_that_is_not_there_is_named(sample: Any, bucket_run: str) -> None:
    with pytest.raises(StoreError, match="s3://nobodys-bucket/run"):
        sample.save("s3://nobodys-bucket/run", 1, 4)
    with pytest.raises(StoreError, match="s3://nobodys-bucket/run"):
        load_checkpoint("s3://nobodys-bucket/run")


@pytest.fixture(params=["without credentials", "without a server"])
def out_of_reach(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, str]:
    """A store in a bucket that nobody can get at, and the reason that its driver gives."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    keys = {"key": "test", "secret": "test"} if request.param == "without a server" else {}
    options = {"endpoint_url": "http://127.0.0.1:1", "config_kwargs": {"retries": {"max_attempts": 0}}, **keys}
    monkeypatch.setitem(fsspec.config.conf, "s3", options)
    reason = "Could not connect to the endpoint URL" if keys else "Unable to locate credentials"
    return "s3://somebodys-bucket/runs/digits.zarr", reason


@pytest.mark.parametrize("call", [require_free, describe_run, load_model])
def test_a_bucket_out_of_reach_is_told_in_one_sentence(
    out_of_reach: tuple[str, str], call: Callable[[str], Any]
) -> None:
    """With the store, the reason and what to see to: its driver's exceptions are no `OSError`."""
    store, reason = out_of_reach
    with pytest.raises(StoreError) as caught:
        call(store)
    text = str(caught.value)
    assert text.startswith("cannot ")
    assert f"{store} ({reason}" in text
    assert text.endswith(
        "see that its URL, its credentials and its endpoint are right, and that the network leads there"
    )
    assert "\n" not in text


def test_only_one_program_goes_on_with_the_run_in_a_bucket(bucket_run: str) -> None:
    """The server decides who was first, not a look at what is there."""
    claim_recovery(bucket_run, 1)
    with pytest.raises(ConfigurationError, match="another program has begun"):
        claim_recovery(bucket_run, 1)
