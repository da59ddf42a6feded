"""What users install: the wheel holds psplatform, all of it, once, and nothing else.

The build runs in a copy of the tree, without isolation and without a network.
"""

from __future__ import annotations

import configparser
import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAPPED = ("policies", "replication", "dashboard")
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "psplatform", *MAPPED)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.Path]:
    """Build the wheel from a checkout and from an sdist, the two ways it comes to a user."""
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    tree.mkdir()
    for name in BUILT_FROM:
        _copy(ROOT / name, tree / name)
    straight, via_sdist = folder / "straight", folder / "via-sdist"
    _python("-m", "build", "--no-isolation", "--wheel", "--outdir", str(straight), str(tree))
    # The links serve checkouts alone: where a download or a file system loses them, the mapping must be enough.
    for name in MAPPED:
        (tree / "psplatform" / name).unlink()
    # Without --wheel, build makes an sdist and then the wheel from what the sdist holds.
    _python("-m", "build", "--no-isolation", "--outdir", str(via_sdist), str(tree))
    return {out.name: zipfile.Path(next(out.glob("*.whl"))) for out in (straight, via_sdist)}


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    else:
        shutil.copyfile(source, target)


def _python(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _python_files(wheel: zipfile.Path) -> set[str]:
    return {name for name in wheel.root.namelist() if name.endswith(".py")}


def _expected() -> set[str]:
    """Name every source file as the wheel should hold it, read from the real folders and not through the links."""
    own = [path.relative_to(ROOT) for path in (ROOT / "psplatform").rglob("*.py") if not _linked(path)]
    mapped = [Path("psplatform") / path.relative_to(ROOT) for name in MAPPED for path in (ROOT / name).rglob("*.py")]
    return {path.as_posix() for path in [*own, *mapped]}


def _linked(path: Path) -> bool:
    return path.relative_to(ROOT / "psplatform").parts[0] in MAPPED


@pytest.mark.parametrize("way", ["straight", "via-sdist"])
def test_the_wheel_holds_every_source_file_once(wheels: dict[str, zipfile.Path], way: str) -> None:
    names = wheels[way].root.namelist()
    assert _python_files(wheels[way]) == _expected()
    assert len(names) == len(set(names))


@pytest.mark.parametrize("way", ["straight", "via-sdist"])
def test_the_wheel_holds_what_pages_send_to_browsers(wheels: dict[str, zipfile.Path], way: str) -> None:
    scripts = {f"psplatform/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "dashboard").rglob("*.js")}
    assert scripts
    assert scripts <= set(wheels[way].root.namelist())


@pytest.mark.parametrize("way", ["straight", "via-sdist"])
def test_the_wheel_brings_no_other_top_level_name(wheels: dict[str, zipfile.Path], way: str) -> None:
    """A user's own `policies` or `tests` is never shadowed by ours."""
    tops = {name.split("/")[0] for name in wheels[way].root.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"psplatform"}


def test_the_wheel_brings_the_policies(wheels: dict[str, zipfile.Path]) -> None:
    assert "psplatform/policies/bsp.py" in _python_files(wheels["straight"])


def test_the_wheel_declares_its_commands_and_policies(wheels: dict[str, zipfile.Path]) -> None:
    """Both command lines and every policy are found by their entry points, which name things that exist."""
    name = next(name for name in wheels["straight"].root.namelist() if name.endswith("entry_points.txt"))
    declared = configparser.ConfigParser()
    declared.read_string(wheels["straight"].root.read(name).decode())
    assert declared["console_scripts"]["psplatform"] == "psplatform.cli.main:main"
    assert declared["dask_cli"]["psplatform"] == "psplatform.cli.main:cli"
    assert set(declared["psplatform.policies"]) >= {"asp", "backup", "bsp", "ssp"}
    for group in declared.sections():
        for entry, value in declared[group].items():
            importlib.metadata.EntryPoint(entry, value, group).load()


def test_dask_lists_our_commands_under_our_name() -> None:
    """Dask takes the name of the group itself and ignores the name of the entry point."""
    (entry,) = (point for point in importlib.metadata.entry_points(group="dask_cli") if point.name == "psplatform")
    assert entry.load().name == "psplatform"


@pytest.mark.parametrize("name", MAPPED)
def test_a_mapped_folder_is_linked_into_the_package(name: str) -> None:
    """A bare checkout, an editor and a type checker find the same files as an installation."""
    link = ROOT / "psplatform" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..") / name
    assert (link / "__init__.py").is_file()


@pytest.mark.parametrize("name", MAPPED)
def test_a_mapped_folder_is_importable_under_one_name_only(name: str) -> None:
    """Isolated from the working directory, only `psplatform.<folder>` exists, so that no file is ever two modules."""
    program = (
        "import importlib, importlib.util, sys\n"
        f"assert importlib.util.find_spec({name!r}) is None\n"
        f"importlib.import_module('psplatform.{name}')\n"
    )
    _python("-I", "-c", program)


def test_a_step_is_compiled_where_there_is_a_compiler(wheels: dict[str, zipfile.Path]) -> None:
    has_compiler = shutil.which(sysconfig.get_config_var("CC").split()[0]) is not None
    for wheel in wheels.values():
        compiled = [name for name in wheel.root.namelist() if name.startswith("psplatform/tensors/_fused")]
        assert len(compiled) == has_compiler
