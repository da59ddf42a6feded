"""Which package may know which: the table, and the tests that hold the source to it.

Imports are read from the source, those inside functions and those for type checkers included, because a line that
names another package knows it, whenever it runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "psplatform"

# Each package with those below it that it may import, itself aside.  A package that is missing here has no place yet.
BASE = frozenset({"core", "jobs", "errors"})
BESIDE = frozenset({"untrusted", "tensors", "tasks", "workloads", "policies", "replication", "network", "telemetry"})
LOWER = BASE | BESIDE | {"nodes"}
LAYERS: Mapping[str, frozenset[str]] = {
    "errors": frozenset(),
    # What others wrote is read within limits: files of stores, and plain values of any origin.
    "untrusted": frozenset(),
    "core": frozenset({"errors"}),
    # The specification of a job, optimisers and stragglers included: values that every layer above may hold.
    "jobs": frozenset({"core", "errors"}),
    # Turns the job's optimiser into arithmetic; events and effects mean nothing to it.
    "tensors": frozenset({"jobs", "errors"}),
    # Decisions, blind to each other, so that any of them runs with any other.
    "policies": BASE,
    "replication": BASE | {"tensors", "untrusted"},
    "network": BASE,
    "telemetry": BASE | {"untrusted"},
    "tasks": BASE | {"tensors"},
    "workloads": BASE | {"tensors", "tasks", "untrusted"},
    # Execute what the state machines of core ask for, by ports of which each driver has its own form.
    "nodes": frozenset({"core", "errors"}),
    # Drivers, blind to each other, so that what one proves does not hang on another.
    "memory": LOWER,
    # Made of the in-memory driver: what it adds is how long everything takes.
    "simulation": LOWER | {"memory"},
    "runtime": LOWER,
    # What Dask workers load before a run needs it.
    "preload": LOWER | {"runtime"},
    # What authors of policies test them with.
    "testing": LOWER | {"memory", "simulation"},
    # What programs call, in both worlds: for real and simulated.
    "client": LOWER | {"runtime", "simulation", "preload"},
    # Pages: what they show is read from stores, what they do is done by the client package.
    "dashboard": BASE | {"policies", "replication", "telemetry", "workloads", "client", "untrusted"},
    # Measurements of the layers below, of no use to any of them.
    "bench": LOWER | {"memory", "simulation", "runtime", "client", "dashboard"},
    "cli": LOWER | {"bench", "client", "simulation", "dashboard", "facade"},
    # psplatform/__init__.py: the names users import, each fetched from its package when it is first asked for.
    "facade": LOWER | {"client", "simulation"},
}

PURE = frozenset({"core", "policies", "jobs", "network", "nodes"})
CLOCKS_AND_CHANCE = frozenset({"time", "datetime", "random", "secrets", "uuid", "sched"})
CONCURRENCY = frozenset({"asyncio", "threading", "multiprocessing", "concurrent", "subprocess", "signal", "queue"})
INPUT_OUTPUT = frozenset({"os", "pathlib", "io", "shutil", "tempfile", "logging", "fsspec", "zarr"})
NETWORKS = frozenset({"socket", "select", "selectors", "ssl", "http", "urllib", "requests", "dask", "distributed"})
DEVICES_AND_SCREENS = frozenset({"torch", "streamlit", "plotly", "click", "rich"})
OUTSIDE_WORLD = CLOCKS_AND_CHANCE | CONCURRENCY | INPUT_OUTPUT | NETWORKS | DEVICES_AND_SCREENS
EVERYWHERE = frozenset(LAYERS)


@dataclass(frozen=True, slots=True)
class Ban:
    """No module of `packages` imports any of `modules`."""

    packages: frozenset[str]
    modules: frozenset[str]
    reason: str
    deferred_allowed: bool = False


BANS = (
    Ban(PURE, OUTSIDE_WORLD, "pure packages decide the same in memory, under Dask and in the simulator"),
    Ban(EVERYWHERE - {"runtime", "client"}, frozenset({"dask", "distributed"}), "only runtime and client know Dask"),
    Ban(EVERYWHERE - {"replication"}, frozenset({"zarr"}), "only replication writes checkpoints"),
    Ban(EVERYWHERE - {"dashboard"}, frozenset({"streamlit", "plotly"}), "only the dashboard draws"),
    Ban(EVERYWHERE - {"cli"}, frozenset({"click", "rich"}), "only the command line speaks to a terminal"),
    Ban(
        frozenset({"errors", "telemetry", "replication", "dashboard", "facade"}),
        frozenset({"torch"}),
        "arithmetic lives in tensors, and logs and errors are read without loading it",
    ),
    Ban(frozenset({"cli"}), frozenset({"torch"}), "`psplatform --help` answers at once", deferred_allowed=True),
    Ban(EVERYWHERE, frozenset({"policies", "replication", "dashboard"}), "the folders are parts of psplatform"),
    Ban(EVERYWHERE, frozenset({"tests", "pytest", "hypothesis"}), "the product does not need its tests"),
)

# What single modules may import although their package may not, with the reason.
EXCEPTIONS: Mapping[tuple[str, str], str] = {
    (
        "psplatform.policies.run_times.training",
        "torch",
    ): "fits the cutoff policy's learned model, before or during runs",
    ("psplatform.policies.run_times.fitted_model", "io"): "a stream in memory: NumPy's file format wants one",
    ("psplatform.bench.rivals.actor", "distributed"): "what ours is compared with is Dask itself",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One module named by an import statement, and whether the statement waits for a call or a type checker."""

    module: str
    line: int
    deferred: bool


@dataclass(frozen=True, slots=True)
class Source:
    """One file of psplatform."""

    module: str
    text: str

    @property
    def package(self) -> str:
        """The row of the table that the file belongs to."""
        return package_of(self.module)

    def imports(self) -> list[Import]:
        """List every import of the file, at whatever depth."""
        return list(_imports(ast.parse(self.text), deferred=False))


def package_of(module: str) -> str:
    """Name the row of the table that a module of psplatform belongs to."""
    parts = module.split(".")
    if parts[1:] == ["__main__"]:
        return "cli"  # the command line by another door
    return parts[1] if len(parts) > 1 and parts[1] != "__init__" else "facade"


def _imports(node: ast.AST, *, deferred: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, deferred) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (Import(name, child.lineno, deferred) for name in _names(child))
        else:
            later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            later = later or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
            yield from _imports(child, deferred=deferred or later)


def _names(statement: ast.ImportFrom) -> list[str]:
    if statement.level:
        return [f"relative:{'.' * statement.level}{statement.module or ''}"]
    module = statement.module or ""
    return [f"{module}.{alias.name}" for alias in statement.names]


def sources() -> list[Source]:
    """Read every file of psplatform under the name it is imported by; the links lead to the mapped folders."""
    found = []
    for folder in [ROOT, *sorted(path for path in ROOT.iterdir() if path.is_dir())]:
        files = folder.glob("*.py") if folder == ROOT else folder.rglob("*.py")
        for file in sorted(files):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(["psplatform", *parts]).removesuffix(".__init__")
            found.append(Source(name, file.read_text(encoding="utf-8")))
    return found


def broken_rules(source: Source) -> list[str]:
    """Say, one sentence each, which imports of a file the table does not allow."""
    if source.package not in LAYERS:
        return [f"{source.module}: package {source.package!r} has no place in the table of layers"]
    return [
        f"{source.module}:{item.line} imports {item.module}: {reason}"
        for item in source.imports()
        for reason in _reasons(source.package, item)
        if (source.module, item.module.split(".")[0]) not in EXCEPTIONS
    ]


def _reasons(package: str, item: Import) -> Iterator[str]:
    top = item.module.split(".")[0]
    if item.module.startswith("relative:"):
        yield "imports are absolute"
    elif top == "psplatform":
        target = _target(item.module)
        if target != package and target not in LAYERS[package]:
            yield f"{package} may not know {target}"
    for ban in BANS:
        if package in ban.packages and top in ban.modules and not (ban.deferred_allowed and item.deferred):
            yield ban.reason


def _target(module: str) -> str:
    """Name the package an import reaches: `psplatform.Job` is the facade's, `psplatform.jobs` is a package."""
    package = package_of(module)
    return package if package in LAYERS or (ROOT / package).exists() else "facade"


def circles(found: Iterable[Source]) -> list[str]:
    """Name the modules of circles of imports, in the order in which they import each other.

    Imports count at whatever depth: one inside a function only puts off what is loaded, and neither module can be
    understood without the other.  The last import of each circle is left out of the search for the next.
    """
    graph = _graph(found)
    named = []
    while circle := _first_circle(graph):
        named.append(" -> ".join(circle))
        graph[circle[-2]].remove(circle[-1])
    return named


def _graph(found: Iterable[Source]) -> dict[str, list[str]]:
    imports = {source.module: [item.module for item in source.imports()] for source in found}
    return {
        module: sorted({name if name in imports else name.rpartition(".")[0] for name in names} & imports.keys())
        for module, names in sorted(imports.items())
    }


def _first_circle(graph: Mapping[str, list[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        *_, circle = error.args
        return list(reversed(circle))  # graphlib names who is imported before who imports it
    return []


def test_every_file_imports_only_what_its_layer_may_know() -> None:
    broken = [sentence for source in sources() for sentence in broken_rules(source)]
    assert not broken, "\n".join(broken)


def test_every_exception_is_made_use_of() -> None:
    made = {(s.module, i.module.split(".")[0]) for s in sources() for i in s.imports()}
    assert made >= EXCEPTIONS.keys()


def test_what_makes_an_exception_is_loaded_by_itself_alone() -> None:
    """Whoever imports the learned model's training does so when something is fitted, never on the way elsewhere."""
    training = "psplatform.policies.run_times.training"
    loads = [
        s.module
        for s in sources()
        if s.package == "policies"
        for i in s.imports()
        if training in i.module and not i.deferred
    ]
    assert loads == []


def test_at_most_one_module_knows_zarr() -> None:
    knowing = [s.module for s in sources() if any(i.module.split(".")[0] == "zarr" for i in s.imports())]
    assert len(knowing) <= 1, knowing


def test_pure_packages_call_nothing_that_reads_or_writes() -> None:
    """`open`, `print` and `input` need no import, so the table of imports cannot see them."""
    calls = [
        f"{source.module}:{node.lineno} {node.func.id}"
        for source in sources()
        if source.package in PURE
        for node in ast.walk(ast.parse(source.text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"open", "print", "input"}
    ]
    assert calls == []


def test_the_table_goes_down_only() -> None:
    """No package may, by way of others, come to know itself."""
    order = list(TopologicalSorter(LAYERS).static_order())
    assert {*order[:2]} == {"errors", "untrusted"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports form no circle, those inside functions and for type checkers included: there is an order to read in."""
    found = circles(sources())
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "second",
    [
        "from psplatform.a.first import First",
        "import psplatform.a.first",
        "if TYPE_CHECKING:\n    from psplatform.a import first",
        "class Second:\n    def make(self):\n        from psplatform.a.first import First",
    ],
    ids=["loaded", "whole module", "for type checkers", "in a function"],
)
def test_a_circle_is_named_in_the_order_of_its_imports(second: str) -> None:
    found = [
        Source("psplatform.a.first", "from psplatform.a import third\nfrom psplatform.b import Leaf"),
        Source("psplatform.a.second", second),
        Source("psplatform.a.third", "from psplatform.a.second import Second"),
        Source("psplatform.b", "class Leaf: ..."),
    ]
    assert circles(found) == [
        "psplatform.a.first -> psplatform.a.third -> psplatform.a.second -> psplatform.a.first",
    ]


def test_every_circle_is_named() -> None:
    pairs = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"), ("d", "a")]
    found = [
        Source(f"psplatform.{name}", "\n".join(f"import psplatform.{other}" for one, other in pairs if one == name))
        for name in "abcd"
    ]
    assert circles(found) == [
        "psplatform.a -> psplatform.b -> psplatform.a",
        "psplatform.b -> psplatform.c -> psplatform.b",
    ]


def test_a_tree_has_no_circle() -> None:
    """Nor have two ways to the same module, a package of what it re-exports, or what lies outside psplatform."""
    found = [
        Source("psplatform.a", "from psplatform.a.top import Top"),
        Source("psplatform.a.top", "import os\nfrom psplatform.a import left, right"),
        Source("psplatform.a.left", "if TYPE_CHECKING:\n    from psplatform.a.leaf import Leaf"),
        Source("psplatform.a.right", "def make():\n    from psplatform.a.leaf import Leaf"),
        Source("psplatform.a.leaf", "import os.path"),
    ]
    assert circles(found) == []


@pytest.mark.parametrize(
    ("module", "text", "reason"),
    [
        ("psplatform.core.coordinator", "import time", "pure packages"),
        ("psplatform.policies.bsp", "def now():\n    from time import monotonic", "pure packages"),
        ("psplatform.jobs.spec", "if TYPE_CHECKING:\n    import torch", "pure packages"),
        (
            "psplatform.core.protocol.events",
            "from psplatform.runtime.pools.fleet import Fleet",
            "core may not know runtime",
        ),
        ("psplatform.policies.ssp", "from psplatform import replication", "policies may not know replication"),
        ("psplatform.policies.run_times.generative", "import torch", "pure packages"),
        ("psplatform.memory.driver", "from psplatform.runtime import train", "memory may not know runtime"),
        ("psplatform.tensors.shard", "import psplatform", "tensors may not know facade"),
        ("psplatform.tensors.shard", "from psplatform import Job", "tensors may not know facade"),
        ("psplatform.tasks.data.sources", "import dask.array as da", "only runtime and client know Dask"),
        ("psplatform.telemetry.log", "import zarr", "only replication writes checkpoints"),
        ("psplatform.runtime.pools.fleet", "from rich import print", "only the command line"),
        ("psplatform.cli.main", "import torch", "answers at once"),
        ("psplatform.runtime.pools.fleet", "import policies", "parts of psplatform"),
        ("psplatform.core.protocol.events", "from . import effects", "imports are absolute"),
        ("psplatform.extras.thing", "", "has no place"),
    ],
)
def test_a_wrong_import_is_reported_with_its_reason(module: str, text: str, reason: str) -> None:
    (sentence,) = broken_rules(Source(module, text))
    assert reason in sentence


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (
            "psplatform.core.protocol.events",
            "import math\nimport numpy as np\nfrom psplatform.errors import ProtocolError",
        ),
        ("psplatform.cli.commands.train", "def command():\n    import torch\n    from psplatform.client import launch"),
        ("psplatform.runtime.pools.fleet", "from distributed import Client\nimport torch"),
        ("psplatform.cli.main", "import psplatform as ps"),
    ],
)
def test_what_the_table_allows_is_not_reported(module: str, text: str) -> None:
    assert broken_rules(Source(module, text)) == []
