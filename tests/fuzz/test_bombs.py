"""Small things that claim to be huge: each is refused in a sentence, in a process that may not have much memory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numcodecs.zstd
import pytest

from psplatform.errors import ConfigurationError, PsplatformError
from psplatform.jobs.job_file import fields_in
from psplatform.policies.run_times.fitted_model import FittedModel
from psplatform.policies.run_times.recorded import read_rounds
from psplatform.replication.checkpoints.metadata import zstd_size
from psplatform.telemetry.log.reader import History
from psplatform.telemetry.log.segments import START, Position

LIMITED = """
import resource, sys
from psplatform.client.runs.verification import verify
from psplatform.client.runs.listing import look_at
from psplatform.client.run import Run
from psplatform.errors import PsplatformError
from psplatform.replication.checkpoints.retention import newest_whole
from psplatform.replication.stores.models import load_model

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
readers = [look_at, load_model, verify]
readers += [lambda one: newest_whole(one).tensors()]
for store in sys.argv[1:]:
    said = []
    for read in readers:
        try:
            read(store)
        except PsplatformError as error:
            said.append(str(error))
    try:  # a run that has ended is shown without the log that cannot be read, and that is said
        status = Run("mlp-backup-1a2b3c", store, gone=True).status()
        said += [one for one in (status["trouble"], *(one["text"] for one in status["summary"]["incidents"])) if one]
    except PsplatformError as error:
        said.append(str(error))
    print(len(said), max(map(len, said), default=0), any("\\n" in one for one in said), flush=True)
"""


def shape(store: Path) -> None:
    """An array of the model has a quadrillion elements."""
    path = store / "model" / "fc.weight" / "zarr.json"
    plain = json.loads(path.read_text())
    plain["shape"] = plain["chunk_grid"]["configuration"]["chunk_shape"] = [10**8, 10**7]
    path.write_text(json.dumps(plain))


def chunk(store: Path) -> None:
    """A chunk of some kilobytes becomes a gigabyte and a half."""
    (path,) = [one for one in (store / "model" / "fc.weight").rglob("*") if one.is_file() and one.name != "zarr.json"]
    path.write_bytes(numcodecs.zstd.Zstd(level=1).encode(bytes(3 << 29)))


def hole(store: Path) -> None:
    """Files have a hole of a terabyte each."""
    for path in (store / "log").iterdir():
        os.truncate(path, 1 << 40)
    os.truncate(store / "checkpoints" / "00200001" / "manifest.jsonl", 1 << 40)


def lists(store: Path) -> None:
    """A segment of a megabyte is of lists inside each other, each said to have a million parts."""
    from zlib import crc32

    (path,) = sorted((store / "log").glob("00000001-*"))[:1]
    header = {"format": "psplatform-log", "version": 1, "term": 1, "number": 1, "after": [0, 0]}
    body = msgpack.packb(header) + b"\x81\xa4kind" + b"\xdd\x00\x0f\xff\xff" * 500 + bytes(1 << 20)
    path.write_bytes(body + msgpack.packb({"end": 1, "crc32": crc32(body)}))


def deep(store: Path) -> None:
    """The description is nested a hundred thousand levels deep."""
    (store / "zarr.json").write_text('{"attributes":' * 100_000 + "{}" + "}" * 100_000)


BOMBS: tuple[Callable[[Path], None], ...] = (shape, chunk, hole, lists, deep)


def test_what_claims_to_be_huge_is_refused_with_a_gigabyte_of_memory(real: Path, tmp_path: Path) -> None:
    import shutil

    stores = []
    for bomb in BOMBS:
        store = tmp_path / f"{bomb.__name__}.zarr"
        shutil.copytree(real, store)
        bomb(store)
        stores.append(str(store))
    arguments = [sys.executable, "-c", LIMITED, *stores]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = [line.split() for line in done.stdout.splitlines()]
    assert len(told) == len(BOMBS)
    for bomb, (refusals, longest, lines) in zip(BOMBS, told, strict=True):
        assert int(refusals) >= 1, bomb
        assert int(longest) < 4000, bomb
        assert lines == "False", bomb


def test_a_name_with_a_large_number_costs_nothing() -> None:
    """A file may be called the quadrillionth segment."""
    history = History((Position(1, 10**14), Position(2, 3)))
    assert history.count_after(START) == 10**14 + 3
    assert history.count_after(Position(1, 5)) == 10**14 - 5 + 3
    assert Position.of("00000001-99999999999999999999.msgpack") is None
    assert Position.of("000000001-00000001.msgpack") is None, "it is not the name of any position"


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 28))
LADDER = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LAUGHS, id="aliases that double"),
        pytest.param(LADDER, id="aliases that nest"),
        pytest.param("a: &a [*a]", id="a list in itself"),
        pytest.param("a: " + "[" * 2000 + "]" * 2000, id="deep"),
        pytest.param("b: &b {x: 1}\na:\n  <<: [" + ", ".join(["*b"] * 60_000) + "]", id="merged"),
        pytest.param("a: " + "1:" * 100_000 + "1", id="a number in base 60"),
        pytest.param("a: !!python/object/apply:os.system [echo]", id="code"),
        pytest.param("? [1, 2]\n: 3", id="a list as a key"),
        pytest.param("a: 2024-99-99", id="no such day"),
        pytest.param("a: \x1b[31m", id="a control character"),
        pytest.param("x: y\n" * 300_000, id="long"),
    ],
)
def test_job_files_are_small_and_plain(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        fields_in(text, "job.yaml")
    said = str(caught.value)
    assert said.startswith("cannot read the job file job.yaml: ")
    assert "\n" not in said
    assert len(said) < 1000


def test_aliases_that_are_few_are_read() -> None:
    text = "a: &a {lr: 0.1}\nb: {<<: *a, momentum: 0.9}\nc: [*a, *a]"
    assert fields_in(text, "job.yaml")["b"] == {"lr": 0.1, "momentum": 0.9}


def test_a_trace_of_as_many_rounds_as_slots_takes_no_square_of_memory() -> None:
    import tracemalloc

    rows = "".join(f"{slot},{slot},0.1\n" for slot in range(4000))
    tracemalloc.start()
    found = read_rounds(f"slot,version,seconds\n{rows}", "trace.csv")
    assert (found.times.shape, found.left_out) == ((0, 4000), 4000)
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


def _npz(compressed: bool, header: bytes, data: bytes = b"") -> bytes:
    stream = io.BytesIO()
    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", how) as archive:
        archive.writestr("format.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        _npz(False, b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }\n"),
        _npz(True, b"{'descr': '|u1', 'fortran_order': False, 'shape': (100000000,), }\n", bytes(10**8)),
        _npz(False, b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", b"cos\nsystem\n(S'x'\ntR."),
        _npz(False, b"[" * 900),
        b"PK\x03\x04" + bytes(40),
    ],
    ids=["shape", "compressed", "pickle", "deep", "no archive"],
)
def test_a_file_of_a_model_is_as_long_as_it_says(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="is no file of a run-time model") as caught:
        FittedModel.from_bytes(content)
    assert "\n" not in str(caught.value)


def test_the_size_that_a_frame_of_zstd_becomes_is_in_it() -> None:
    for size in (0, 1, 255, 256, 300, 70_000):
        assert zstd_size(bytes(numcodecs.zstd.Zstd().encode(bytes(size)) if size else b"")) == (size or None)


def _plain_trials() -> list[Any]:
    wrong: list[Any] = [{"workers": 10**9}, {"faults": [{"kind": []}]}, {"faults": 3}, {"copying": [1]}]
    wrong += [{"noise": {"latency_s": float("nan")}}, {"rates": {"a": "b"}}, {"updates": 1.5}, {"policy": ["bsp"]}]
    return [*wrong, {"faults": [{"kind": "kill", "who": "server 0", "at": "soon"}]}, {"late": [10**30]}]


@pytest.mark.parametrize("plain", _plain_trials(), ids=repr)
def test_a_trial_that_makes_no_sense_is_refused(plain: dict[str, Any]) -> None:
    from psplatform.simulation.faults.schedules.trial import Trial

    with pytest.raises(PsplatformError, match="makes no sense") as caught:
        Trial.from_plain(plain)
    assert "\n" not in str(caught.value)
