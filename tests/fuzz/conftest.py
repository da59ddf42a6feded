"""A real store, and what becomes of it in other hands."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

import psplatform as ps
from psplatform.core.quality import Watch
from psplatform.replication.checkpoints.arrays import Contents, numpy_dtype
from psplatform.replication.checkpoints.manifest import FORMAT
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.checksums import checksum, fingerprint
from psplatform.replication.stores.models import save_best, save_model
from psplatform.replication.stores.store import create_run, update_run
from psplatform.telemetry.log.writer import EventLog
from psplatform.tensors.layout import Layout, TensorSpec

EXAMPLES: Final = int(os.environ.get("PSPLATFORM_FUZZ_EXAMPLES", "30"))
"""Of each test; the same ones every time."""

FUZZ: Final = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),  # an example of a whole store is not made smaller in a test's time
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, -1, 0, 1, 10**6, 10**15, 2**63 - 1, -(2**63), 0.5, math.nan, math.inf, -math.inf, 1e300),
    *("", "x", "../../outside", "/etc/hostname", "\x1b[2J", "[red]x", "\ud800", "a" * 5000, "digits-bsp-1a2b3c"),
    *([], {}, [None], [[1, 2]], {"x": 1}, {"": []}, [10**15, 10**15], DEEP, {"mode": [1]}),
)
"""What may stand where something else belongs."""

SPECS: Final = (TensorSpec("fc.weight", (4, 3), "float32", "parameter"), TensorSpec("seen", (), "int64", "buffer"))


@pytest.fixture(scope="session")
def fuzz() -> settings:
    return FUZZ


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the store of a short run: the log of a simulation with real gradients, checkpoints, models."""
    job = ps.Job(
        workload="mlp",
        options={"samples": 60, "dimension": 4, "classes": 2},
        policy="backup",
        policy_options={"k": 1},
        workers=2,
        batch_size=16,
        evaluate_every=3,
        stop=ps.Stop(updates=8),
        replication="bounded",
    )
    conditions = ps.Conditions(compute="shifted-exponential:shift=0.02,mean=0.1")
    records = ps.simulate(job, conditions, keep_records=True).records
    store = str(tmp_path_factory.mktemp("real") / "run.zarr")
    run = {"run": "mlp-backup-1a2b3c", "policy": "backup", "workload": "mlp", "started": 1.6e9, "term": 1}
    create_run(store, {**run, "job": job.to_plain(policy="backup")})
    half = len(records) // 2
    for term, some in ((1, records[:half]), (2, records[half:])):
        with EventLog(store, term) as log:
            for one in some:
                log.append(one)
    for number in (100_001, 200_001):
        _checkpoint(store, number)
    arrays = {"fc.weight": np.arange(12, dtype=np.float32).reshape(4, 3), "seen": np.array(7)}
    save_model(store, arrays, version=8)
    save_best(store, arrays, version=6, watch=Watch("loss", frozenset({"loss"})), value=0.5)
    update_run(store, outcome="failed", error="it failed", failure={"class": "ClusterError", "message": "it failed",
                                                                    "attributes": {"peer": None}})  # fmt: skip
    return Path(store)


def _checkpoint(store: str, number: int) -> None:
    contents = Contents(Layout.of(SPECS, shards=1), ("momentum",))
    vectors = {key: np.ones(size, numpy_dtype(dtype)) for key, (dtype, size) in contents.vectors(0).items()}
    plain = {"applied": [[0, 3]], "commits": 3}
    part = CheckpointWriter(store, number, contents).write_shard(0, vectors, position=3, version=3, plain=plain)
    state = {"version": 3, "positions": [3], "versions": [3], "newest": [[[0, 3]]], "seconds": 1.0,
             "samples_applied": 48, "bad_batches": [0, 0], "learner": "", "policy": {}, "deck": None,
             "progress": {"metric": "loss", "lower": True, "values": [0.5, 3, 0.5, 0]},
             "roster": {"sequences": [[0, 3]], "incarnations": [[0, 1]], "minimum_clock": 3}}  # fmt: skip
    seal(store, number, [part], positions=[3], state=state, time_s=1.6e9)


@pytest.fixture
def fresh(real: Path, tmp_path: Path) -> Callable[[], Path]:
    """Return a copy of the real store, another one each time."""

    def copy() -> Path:
        place = tmp_path / "run.zarr"
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(real, place)
        return place

    return copy


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(one for key, part in parts for one in _places(part, (*path, key)))]


def changed(value: Any, data: st.DataObject) -> Any:
    """Return a value of lists and maps of which one part is replaced, left out, renamed or wrapped."""
    path = data.draw(st.sampled_from(_places(value)[1:] or [()]))
    way = data.draw(st.sampled_from(["replace", "replace", "replace", "drop", "wrap", "rename"]))
    whole = [value]
    inner: Any = whole
    for key in (0, *path[:-1]) if path else ():
        inner = inner[key]
    key = path[-1] if path else 0
    if way == "drop" and path:
        del inner[key]
    elif way == "wrap":
        inner[key] = [inner[key]]
    elif way == "rename" and isinstance(inner, dict):
        inner[data.draw(st.sampled_from(["x", "..", "\x1b[1m", "kind", "at"]))] = inner.pop(key)
    else:
        inner[key] = data.draw(st.sampled_from(ODD))
    return whole[0]


def _json(path: Path, data: st.DataObject) -> None:
    path.write_text(json.dumps(changed(json.loads(path.read_text()), data)))


def resealed(line: bytes) -> bytes:
    """Return a manifest with that second line and the checksum that belongs to it."""
    digest = fingerprint(b"%d\n" % FORMAT + line)
    return json.dumps({"psplatform_checkpoint": FORMAT, "blake2b": digest}).encode() + b"\n" + line + b"\n"


def _manifest(path: Path, data: st.DataObject) -> None:
    line = path.read_bytes().split(b"\n")[1]
    path.write_bytes(resealed(json.dumps(changed(json.loads(line), data)).encode()))


def _state(path: Path, data: st.DataObject) -> None:
    """Change the plain state of a checkpoint, and the manifest, so that the checksums are right."""
    plain = changed(msgpack.unpackb(path.read_bytes(), strict_map_key=False), data)
    try:
        packed = msgpack.packb(plain)
    except (TypeError, ValueError, OverflowError):
        packed = b"\xc1"
    path.write_bytes(packed)
    manifest = path.with_name("manifest.jsonl")
    body = json.loads(manifest.read_bytes().split(b"\n")[1])
    body["objects"]["state.msgpack"] = [len(packed), checksum(packed)]
    manifest.write_bytes(resealed(json.dumps(body).encode()))


def sealed(frames: list[Any]) -> bytes:
    """Return the bytes of a segment with these frames, its header included, and the checksum that belongs to them."""
    body = b"".join(msgpack.packb(one) for one in frames)
    packed: bytes = body + msgpack.packb({"end": len(frames) - 1, "crc32": crc32(body)})
    return packed


def _segment(path: Path, data: st.DataObject) -> None:
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(path.read_bytes())
    *frames, _ = list(unpacker)
    place = data.draw(st.integers(0, len(frames) - 1))
    frames[place] = changed(frames[place], data)
    try:
        path.write_bytes(sealed(frames))
    except (TypeError, ValueError, OverflowError):
        path.write_bytes(b"")


def _bytes(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    way = data.draw(st.sampled_from(["flip", "cut", "append", "empty", "noise"]))
    if way == "flip" and content:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    elif way == "cut" and content:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    elif way == "append":
        content += data.draw(st.binary(min_size=1, max_size=40))
    else:
        content[:] = b"" if way == "empty" else data.draw(st.binary(max_size=200))
    path.write_bytes(content)


def _file(path: Path, data: st.DataObject) -> None:
    """Put something in the place of a file: a link, a folder, a pipe, another of the store's files, nothing."""
    root = next(one for one in path.parents if one.name == "run.zarr")
    way = data.draw(st.sampled_from(["link", "dangling", "loop", "folder", "pipe", "gone", "swap", "folder link"]))
    if way == "swap":
        other = data.draw(st.sampled_from(sorted(one for one in root.rglob("*") if one.is_file())))
        path.write_bytes(other.read_bytes())
        return
    if way == "folder link":
        folder = path.parent
        if folder != root:
            folder.rename(root.parent / "elsewhere")
            folder.symlink_to(root.parent / "elsewhere")
        return
    outside = root.parent / "outside"
    outside.write_bytes(path.read_bytes())
    path.unlink()
    if way in ("link", "dangling", "loop"):
        path.symlink_to({"link": outside, "dangling": root.parent / "nowhere", "loop": path.parent}[way])
    elif way == "folder":
        path.mkdir()
    elif way == "pipe":
        os.mkfifo(path)


@dataclass(frozen=True)
class Hands:
    """Changes a store."""

    def spoil(self, store: Path, data: st.DataObject) -> None:
        """Change one thing in a store; drawn, so that the same draw changes the same."""
        elsewhere = store.parent / "elsewhere"
        if elsewhere.exists():
            shutil.rmtree(elsewhere)
        structured = {"zarr.json": _json, "manifest.jsonl": _manifest, "state.msgpack": _state}
        kinds = [*structured, ".msgpack", "any bytes", "any file"]
        kind = data.draw(st.sampled_from(kinds))
        files = sorted(one for one in store.rglob("*") if one.is_file())
        if kind == ".msgpack":
            _segment(data.draw(st.sampled_from([one for one in files if one.parent.name == "log"])), data)
        elif kind in structured:
            structured[kind](data.draw(st.sampled_from([one for one in files if one.name == kind])), data)
        else:
            {"any bytes": _bytes, "any file": _file}[kind](data.draw(st.sampled_from(files)), data)


@pytest.fixture
def hands() -> Hands:
    return Hands()
