"""Stores of runs in every state, and pages about them in Streamlit's own test bench."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from streamlit.testing.v1 import AppTest

import psplatform as ps
from psplatform.dashboard.charts import NAME as CHART
from psplatform.dashboard.settings import Settings, install
from psplatform.replication.checkpoints.arrays import Contents
from psplatform.replication.checkpoints.parts import CheckpointWriter
from psplatform.replication.checkpoints.sealing import seal
from psplatform.replication.stores.store import create_run, update_run
from psplatform.telemetry.log.writer import EventLog
from psplatform.tensors.layout import Layout, TensorSpec

Records = list[dict[str, Any]]
MakeRecord = Callable[..., dict[str, Any]]

LONG_AGO = 1.6e9


@pytest.fixture(autouse=True)
def _main_stays() -> Iterator[None]:
    """Put the main module back in its place, where Streamlit's bench leaves a page's: spawned processes import it."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@dataclass(frozen=True)
class Trained:
    """A training of the simulator, with real gradients: its job and its whole log."""

    job: dict[str, Any]
    records: Records


@pytest.fixture(scope="session")
def trained(promoted: MakeRecord, taken_over: MakeRecord) -> Trained:
    """Backup workers under stragglers, whose late gradients are dropped; a server and the coordinator are lost."""
    job = ps.Job(
        workload="mlp",
        options={"samples": 400, "dimension": 8, "classes": 3},
        policy="backup",
        policy_options={"k": 2},
        workers=3,
        shards=2,
        batch_size=16,
        evaluate_every=5,
        stop=ps.Stop(updates=20),
        replication="bounded",
    )
    conditions = ps.Conditions(compute="shifted-exponential:shift=0.02,mean=0.1;slow:chance=0.3,factor=6")
    records = ps.simulate(job, conditions, keep_records=True).records
    middle = len(records) // 2
    at = float(records[middle]["at"])
    losses = [promoted(at=at, shard=0, unit="updates", bound=8.0, distance_lost=0.0), taken_over(at=at)]
    note = {"kind": "note", "at": at, "text": "a replica was made anew"}
    return Trained(job.to_plain(), [*records[:middle], *losses, note, *records[middle:]])


@dataclass
class Shelf:
    """A folder of stores."""

    folder: Path
    trained: Trained

    def write(self, name: str, records: Iterable[dict[str, Any]] | None = None, **description: Any) -> str:
        """Make the store of a run that was started long ago and logged these records, by default all of a training."""
        store = str(self.folder / f"{name}.zarr")
        first = self.trained.records[0]
        known = {**first, "job": self.trained.job, "started": LONG_AGO, "run": name, "store": store, **description}
        create_run(store, known)
        found = list(self.trained.records if records is None else records)
        self.log(store, [{**one, "run": known["run"]} if one["kind"] == "run" else one for one in found])
        return store

    def log(self, store: str, records: Iterable[dict[str, Any]], term: int = 1) -> None:
        """Write records under a term of their own."""
        with EventLog(store, term, flush_records=16) as log:
            for one in records:
                log.append(one)

    def finished(self, name: str, **description: Any) -> str:
        store = self.write(name, **description)
        update_run(store, outcome="updates", error="", failure=None)
        return store

    def live(self, name: str, upto: int | None = None) -> str:
        """Make the store of a run that goes on: its log was written to just now, and has no end."""
        records = [one for one in self.trained.records if one["kind"] not in ("finished", "left")]
        return self.write(name, records[:upto])

    def failed(self, name: str, message: str = "ValueError in the user's code") -> str:
        store = self.write(name, self.trained.records[:60])
        failure = {"class": "UserCodeError", "message": message, "attributes": {}}
        update_run(store, outcome="failed", error=message, failure=failure)
        return store

    def recoverable(self, name: str) -> str:
        """Make the store of a run that fell silent after two checkpoints."""
        store = self.write(name, self.trained.records[:60])
        for number in (1, 2):
            self.checkpoint(store, number)
        for path in Path(store, "log").iterdir():
            os.utime(path, (LONG_AGO, LONG_AGO))
        return store

    def checkpoint(self, store: str, number: int) -> None:
        contents = Contents(Layout.of((TensorSpec("w", (4,), "float32", "parameter"),), shards=1), ())
        vectors = {key: np.zeros(size, dtype) for key, (dtype, size) in contents.vectors(0).items()}
        cut = {"position": number, "version": number, "plain": {"commits": 0}}
        part = CheckpointWriter(store, number, contents).write_shard(0, vectors, **cut)
        seal(store, number, [part], positions=[number], state={}, time_s=LONG_AGO)

    def newer(self, name: str) -> str:
        store = self.finished(name)
        path = Path(store, "zarr.json")
        content = json.loads(path.read_text())
        content["attributes"]["psplatform"]["format"] = 99
        path.write_text(json.dumps(content))
        return store

    def foreign(self, name: str) -> str:
        store = str(self.folder / f"{name}.zarr")
        zarr.create_group(store)
        return store

    def torn(self, name: str) -> str:
        """Make the store of a finished run of whose log a segment in the middle is cut."""
        store = self.finished(name)
        segments = sorted(Path(store, "log").iterdir())
        middle = segments[len(segments) // 2]
        middle.write_bytes(middle.read_bytes()[:-7])
        return store


@pytest.fixture
def shelf(tmp_path: Path, trained: Trained) -> Shelf:
    return Shelf(tmp_path / "runs", trained)


class Bench:
    """Shows pages about a folder, each in a session of its own."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(folder=str(folder / "runs"), records=str(folder / "records"))

    def show(self, page: str, run: str | None = None, address: str | None = None, **session: Any) -> AppTest:
        """Return a page, with a run chosen if one is named, in the session or in the address."""
        install(self.settings)
        app = AppTest.from_function(_script, args=(page,), default_timeout=180)
        for name, value in session.items():
            app.session_state[name] = value
        if run is not None:
            app.session_state["run"] = [run]
        if address is not None:
            app.query_params["run"] = [address]
        return app.run()


def _script(page: str) -> None:
    import importlib

    importlib.import_module(f"psplatform.dashboard.pages.{page}").page()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="session")
def said() -> Callable[[AppTest], list[str]]:
    """Return every text of a page that Streamlit takes for Markdown."""

    def texts(app: AppTest) -> list[str]:
        kinds = ("markdown", "caption", "info", "success", "warning", "error", "toast", "title")
        found = [str(one.value) for kind in kinds for one in app.get(kind)]
        found += [text for one in app.metric for text in (one.label, str(one.value))]
        found += [str(one.label) for kind in ("button", "expander", "text_input") for one in app.get(kind)]
        return found

    return texts


@pytest.fixture(scope="session")
def spec() -> Callable[[AppTest, str], dict[str, Any]]:
    """Return a figure of a page by the key that it has there."""

    def figure(app: AppTest, key: str) -> dict[str, Any]:
        for one in app.get("bidi_component"):
            if one.proto.component_name == CHART and one.proto.id.endswith(f"-{key}"):
                return json.loads(json.loads(one.proto.json)["figure"])
        pytest.fail(f"there is no figure {key!r}")

    return figure


@pytest.fixture(scope="session")
def healthy() -> Callable[[AppTest], None]:
    """Fail if a page has raised, or says something in more than one paragraph."""

    def check(app: AppTest) -> None:
        assert [(one.message, one.stack_trace[-2:]) for one in app.exception] == []
        for one in [*app.error, *app.warning, *app.info]:
            assert "\n" not in one.value
            assert "Traceback" not in one.value

    return check


@pytest.fixture
def recent() -> float:
    """Return now, as stores say it."""
    return time.time()
