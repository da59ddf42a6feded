"""What other versions wrote: earlier formats are read, later ones are neither guessed at nor touched."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any
from zlib import crc32

import fsspec
import pytest

from psplatform.errors import CheckpointError, StoreError
from psplatform.replication.checkpoints.retention import (
    checkpoints_of,
    load_checkpoint,
    newest_whole,
    next_number,
    prune,
)
from psplatform.replication.stores.checksums import agrees, checksum, fingerprint

FILES = fsspec.filesystem("memory")


@pytest.mark.parametrize(
    "use", [load_checkpoint, newest_whole, checkpoints_of, lambda run: prune(run, 1, writing=None)]
)
def test_a_newer_format_asks_for_an_update(
    sample: Any, memory_run: str, use: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is neither guessed at nor passed over nor removed."""
    sample.save(memory_run, 1, 4)
    with monkeypatch.context() as later:
        later.setattr("psplatform.replication.checkpoints.manifest.FORMAT", 4)
        sample.save(memory_run, 2, 5)
    kept = FILES.find(memory_run)
    with pytest.raises(StoreError, match="format 4; this psplatform reads formats up to 3, update it") as caught:
        use(memory_run)
    assert not isinstance(caught.value, CheckpointError)
    assert next_number(memory_run) == 3
    assert FILES.find(memory_run) == kept


def test_checksums_are_told_with_their_kind(sample: Any, memory_run: str) -> None:
    """What either kind makes of the nine digits is a number that every description of it names."""
    assert checksum(b"123456789") == "crc32c:e3069283"
    assert agrees("crc32:cbf43926", b"123456789")
    assert not agrees("crc32:cbf43926", b"123456788")
    sample.save(memory_run, 1, 4)
    _, line, _ = FILES.cat_file(f"{memory_run}/checkpoints/00000001/manifest.jsonl").split(b"\n")
    assert {stored[1].partition(":")[0] for stored in json.loads(line)["objects"].values()} == {"crc32c"}


@pytest.mark.parametrize(
    ("format_", "digest"),
    [
        (1, lambda data: blake2b(data, digest_size=16).hexdigest()),  # which only manifests have now
        (2, lambda data: f"crc32:{crc32(data):08x}"),
    ],
)
def test_earlier_formats_are_read_too(
    sample: Any, memory_run: str, format_: int, digest: Callable[[bytes], str]
) -> None:
    """Their checksums are others; damage is noticed as well."""
    sample.save(memory_run, 1, 4)
    folder = f"{memory_run}/checkpoints/00000001"
    _write_as(folder, format_, digest)
    load_checkpoint(memory_run, 1).verify()
    assert sample.version_of(load_checkpoint(memory_run, 1)) == 4
    FILES.pipe_file(f"{folder}/model/mask/c/0/0", b"\0" * 15)
    with pytest.raises(CheckpointError, match=r"model/mask/c/0/0: its checksum differs"):
        load_checkpoint(memory_run, 1).verify()


def _write_as(folder: str, format_: int, digest: Callable[[bytes], str]) -> None:
    _, line, _ = FILES.cat_file(f"{folder}/manifest.jsonl").split(b"\n")
    body = json.loads(line)
    for path, stored in body["objects"].items():
        stored[1] = digest(FILES.cat_file(f"{folder}/{path}"))
    line = json.dumps(body).encode()
    head = {"psplatform_checkpoint": format_, "blake2b": fingerprint(b"%d\n" % format_ + line)}
    FILES.pipe_file(f"{folder}/manifest.jsonl", json.dumps(head).encode() + b"\n" + line + b"\n")
