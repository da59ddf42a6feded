"""What a pickle refers to by name, and what a process says of a name that it cannot import."""

from __future__ import annotations

import asyncio
import importlib
import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

from psplatform.runtime.references import Lack, find_lacks, lacks_here, pickled

TEXT = """
def build(): return 1
class Net:
    class Part: pass
    def method(self): pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Make a module that can be imported until the test ends, under a name that no other test uses."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, text: str) -> ModuleType:
        file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return importlib.import_module(name)

    return make


def names_in(value: object) -> tuple[str, ...]:
    whole, named = pickled(value)
    assert whole == cloudpickle.dumps(value)
    return named


def test_functions_classes_and_objects_of_a_module_are_noted(module: Callable[..., Any]) -> None:
    mine = module("package_a.mine", TEXT)
    assert names_in(mine.build) == ("package_a.mine:build",)
    assert names_in(mine.Net()) == ("package_a.mine:Net",)
    assert names_in({"part": [mine.Net.Part]}) == ("package_a.mine:Net.Part",)
    assert names_in(partial(print, mine.Net().method)) == ("package_a.mine:Net", "package_a.mine:Net.method")


def test_a_module_that_a_function_of_the_program_uses_is_noted(module: Callable[..., Any]) -> None:
    mine = module("mine_b", TEXT)
    scope: dict[str, Any] = {"mine_b": mine, "build": mine.build, "__name__": "__main__"}
    exec("def one(): return mine_b.build()\ndef other(): return build()", scope)  # noqa: S102  as a main script does
    assert names_in(scope["one"]) == ("mine_b:",)
    assert names_in(scope["other"]) == ("mine_b:build",)


def test_what_travels_by_value_is_not_noted(module: Callable[..., Any]) -> None:
    mine = module("mine_c", TEXT)
    cloudpickle.register_pickle_by_value(mine)
    try:
        assert pickled((mine.build, mine.Net()))[1] == ()
        assert pickled(mine)[1] == ()
    finally:
        cloudpickle.unregister_pickle_by_value(mine)


def test_what_every_process_has_is_not_noted() -> None:
    value = (
        nn.functional.cross_entropy,
        nn.Linear(2, 2),
        torch.zeros(2),
        threading.Thread,
        Lack,
        len,
        [].append,
        pickle,
    )
    assert names_in(value) == ()


def test_nothing_is_lacking_where_everything_is(module: Callable[..., Any]) -> None:
    module("mine_d", TEXT)
    assert find_lacks(["mine_d:", "mine_d:build", "mine_d:Net.Part", "os.path:join"]) == ()


def test_a_module_that_is_not_there_is_named_and_so_is_its_package(module: Callable[..., Any]) -> None:
    module("package_e.mine", TEXT)
    first, second = find_lacks(["nowhere_e.nets:Net", "package_e.other:Net"])
    assert (first.kind, first.module, first.reason) == ("absent", "nowhere_e", "has no module nowhere_e")
    assert (second.kind, second.module) == ("absent", "package_e.other")


def test_a_module_that_another_needs_is_named(module: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine_f.py").write_text("import nowhere_f")
    (lack,) = find_lacks(["mine_f:Net"])
    assert (lack.reference, lack.kind, lack.module) == ("mine_f:Net", "absent", "nowhere_f")


@pytest.mark.parametrize(
    "raising", ["raise ValueError('two\\nlines')", "raise SystemExit(3)", "raise ImportError('x')"]
)
def test_a_module_that_raises_is_imported_once_and_told_in_one_line(
    raising: str, module: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "mine_g.py").write_text(
        f"with open({str(tmp_path / 'count')!r}, 'a') as file: file.write('x')\n{raising}"
    )
    lacks = find_lacks(["mine_g:Net", "mine_g:build"])
    assert [(one.reference, one.kind) for one in lacks] == [("mine_g:Net", "broken"), ("mine_g:build", "broken")]
    assert lacks[0].reason.startswith("cannot import the module mine_g (")
    assert "\n" not in lacks[0].reason
    assert (tmp_path / "count").read_text() == "x"


def test_a_module_that_is_another_than_here_is_told(module: Callable[..., Any]) -> None:
    module("mine_h", TEXT)
    (lack,) = find_lacks(["mine_h:Net", "mine_h:Net.Other"])
    assert (lack.kind, lack.reason) == ("content", "has a module mine_h without Net.Other")


def test_a_module_that_was_brought_meanwhile_is_found(module: Callable[..., Any], tmp_path: Path) -> None:
    assert len(find_lacks(["mine_i:build"])) == 1
    (tmp_path / "mine_i.py").write_text(TEXT)
    assert find_lacks(["mine_i:build"]) == ()


def test_nothing_of_it_is_imported_on_the_event_loop(module: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine_j.py").write_text("import threading\nname = threading.current_thread().name")
    assert asyncio.run(lacks_here(["mine_j:name"])) == ()
    assert sys.modules["mine_j"].name != threading.current_thread().name
