"""``psplatform policies``: what there is to choose from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from psplatform.policies.registry import policy_names


def test_every_policy_is_listed_with_its_parameters_and_source(psplatform: Callable[..., Any]) -> None:
    """Enough to write the command that uses it."""
    result = psplatform("policies")
    assert result.exit_code == 0
    assert [name for name in policy_names() if f"{name}: " not in result.output] == []
    assert "-o k=None" in result.output
    assert "Revisiting distributed synchronous SGD" in result.output


def test_scripts_get_the_same_as_one_json_object(
    psplatform: Callable[..., Any], last_json: Callable[[Any], dict[str, Any]]
) -> None:
    """On the last line, with types and ranges, as forms need them."""
    result = psplatform("policies", "--json")
    found = {one["name"]: one for one in last_json(result)["policies"]}
    assert sorted(found) == policy_names()
    (bound,) = (one for one in found["ssp"]["parameters"] if one["name"] == "bound")
    assert (bound["default"], bound["type"]) == (3, "int")
    assert len(result.stdout.splitlines()) == 1


@pytest.mark.parametrize("command", [[], ["train"], ["runs"], ["attach"], ["policies"], ["demo"]])
def test_every_command_has_help(psplatform: Callable[..., Any], command: list[str]) -> None:
    result = psplatform(*command, "--help")
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")


def test_an_unknown_command_is_refused(refused: Callable[..., str]) -> None:
    assert "No such command 'trian'" in refused("trian")
