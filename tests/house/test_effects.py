"""Every effect is executed at one place: by the node of the role that asks for it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import get_args

from psplatform.core.protocol.effects import Effect

ROOT = Path(__file__).parents[2]
EFFECTS = {one.__name__ for one in get_args(Effect)}
OF_SEVERAL = {"Send", "SetTimer", "Claim", "Depart", "Evaluate", "SaveModel"}
"""Asked for by several roles; or by a coordinator, whose node passes them on to the evaluator's."""


def executed_in(path: Path) -> set[str]:
    """Return the effects that a file has a table for."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    keys = [key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys]
    return {key.id for key in keys if isinstance(key, ast.Name)} & EFFECTS


def asked_about_in(path: Path) -> set[str]:
    """Return the effects that a file tells from others by their class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    asked = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
    ]
    names = [name for call in asked for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)]
    return {name.id for name in names} & EFFECTS


def test_every_effect_is_executed_by_one_node() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "psplatform").rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if not where.startswith("psplatform/core/"):
            for name in executed_in(path):
                places[name].append(where)
    assert set(places) == EFFECTS
    assert all(where.startswith("psplatform/nodes/") for wheres in places.values() for where in wheres), places
    assert {name for name, wheres in places.items() if len(wheres) > 1} <= OF_SEVERAL, places


def test_beside_nodes_effects_are_only_looked_at() -> None:
    """By who records or checks what is done, by a coordinator's outbox, and where loading takes time."""
    product = ROOT / "psplatform"
    lookers = {path.relative_to(product).as_posix() for path in product.rglob("*.py") if asked_about_in(path)}
    beside = {one for one in lookers if one.split("/")[0] not in {"core", "nodes"}}
    allowed = {"memory/roles/shard_state.py", "runtime/actors/coordinator/outbox.py", "runtime/store/recording.py"}
    assert {one for one in beside if not one.startswith("simulation/faults/")} <= allowed, beside
