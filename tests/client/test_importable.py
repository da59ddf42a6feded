"""What is said of a module that Dask workers lack: which, where, for what, and how to bring it there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

import psplatform as ps
from psplatform.client.starting.importable import refusal
from psplatform.client.starting.prepared import prepare
from psplatform.policies.asp import Asynchronous
from psplatform.runtime.references import Lack

HERE, THERE = "tcp://10.0.0.1:1", "tcp://10.0.0.2:1"
ABSENT = Lack("nets:Net", "absent", "nets", "has no module nets")
NEEDED = {"model": ("nets:Net",), "data": (), "policy": ("nets:Mine", "nets:Net")}


def test_one_worker_and_one_field() -> None:
    error = refusal({HERE: (ABSENT,)}, {"model": ("nets:Net",)})
    assert error.field == "model"
    assert str(error) == (
        f"the Dask worker {HERE} has no module nets, which model needs; install nets in every worker's environment, or "
        "let it travel with the job: define it in your main script or call cloudpickle.register_pickle_by_value(nets)"
    )


def test_of_many_workers_the_first_is_named_and_of_fields_all_that_need_it() -> None:
    error = refusal({f"tcp://10.0.0.{number}:1": (ABSENT,) for number in (3, 2, 1)}, NEEDED)
    assert str(error).startswith(
        f"the Dask worker {HERE} (and 2 more) has no module nets, which model and policy need; "
    )
    assert error.field == "model"


def test_a_single_file_can_be_uploaded_and_a_package_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("nets")
    module.__file__ = "/home/me/nets.py"
    monkeypatch.setitem(sys.modules, "nets", module)
    upload = 'in every worker\'s environment, or send its file with client.upload_file("/home/me/nets.py"), or let'
    assert upload in str(refusal({HERE: (ABSENT,)}, NEEDED))
    module.__path__ = ["/home/me/nets"]
    assert "upload_file" not in str(refusal({HERE: (ABSENT,)}, NEEDED))


def test_a_submodule_is_named_and_its_package_installed() -> None:
    lack = Lack("nets.large:Net", "absent", "nets.large", "has no module nets.large")
    said = str(refusal({HERE: (lack,)}, {"model": ("nets.large:Net",)}))
    assert "has no module nets.large, which model needs; install nets in every worker's environment" in said


def test_a_module_that_one_of_the_workers_own_imports_is_to_be_installed() -> None:
    lack = Lack("nets:Net", "absent", "scipy", "has no module scipy")
    said = str(refusal({HERE: (lack,)}, NEEDED))
    assert said.endswith(
        "has no module scipy, which model and policy need; install scipy in every worker's environment"
    )


def test_a_module_that_raises_is_to_be_made_importable() -> None:
    lack = Lack("nets:Net", "broken", "nets", "cannot import the module nets (ValueError: no)")
    said = str(refusal({HERE: (lack,)}, NEEDED))
    assert said.endswith("need; make `import nets` work in the environment of every worker")


def test_another_version_is_told_what_it_lacks() -> None:
    lack = Lack("nets:Net", "content", "nets", "has a module nets without Net")
    said = str(refusal({HERE: (lack,)}, NEEDED))
    assert "has a module nets without Net, which model and policy need; install the same nets in" in said
    assert said.endswith("and restart the workers")


def test_what_a_function_imports_cannot_travel_by_value() -> None:
    error = refusal({HERE: (Lack("nets:", "absent", "nets", "has no module nets"),)}, {})
    said = f"the Dask worker {HERE} has no module nets, which a function of the job imports"
    assert str(error) == f"{said}; install nets in every worker's environment"
    assert error.field is None


def test_what_is_missing_is_told_before_what_may_follow_from_it() -> None:
    silent = Lack("nets:Net", "silent", "nets", "did not say whether it can import nets (no answer)")
    error = refusal({HERE: (silent,), THERE: (ABSENT,)}, NEEDED)
    assert str(error).startswith(f"the Dask worker {THERE} has no module nets")


def test_a_job_knows_what_its_fields_refer_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the field that the user gave."""
    (tmp_path / "mine_k.py").write_text(
        "def build(): return 1\nclass Half:\n    def factor(self, updates, epochs): return 0.5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    import mine_k

    supervised = {"model": mine_k.build, "loss": nn.functional.cross_entropy, "data": [1, 2]}
    references = prepare(ps.Job(**supervised, schedule=mine_k.Half(), policy=Asynchronous())).references
    named = {field: named for field, named in references.items() if named}
    assert named == {"model": ("mine_k:build",), "schedule": ("mine_k:Half",)}
    assert not any(prepare(ps.Job(workload="digits")).references.values())
