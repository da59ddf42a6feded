"""``psplatform bench soak``: what is asked for is measured, and what is broken ends with exit code 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from psplatform.bench import soak


@pytest.mark.parametrize(
    ("survived", "violations", "code"), [(4, [], 0), (3, [], 1), (4, ["version 5 was committed after version 5"], 1)]
)
def test_a_soak_ends_with_an_exit_code_that_tells_whether_promises_held(
    psplatform: Callable[..., Result],
    last_json: Callable[[Result], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    survived: int,
    violations: list[str],
    code: int,
) -> None:
    asked: list[dict[str, Any]] = []

    def measure(report: object, **sizes: Any) -> dict[str, Any]:
        asked.append(sizes)
        return {"faults": 4, "survived": survived, "violations": violations, "rows": []}

    monkeypatch.setattr(soak, "measure", measure)
    result = psplatform("bench", "soak", "--faults", "4", "--seed", "3", "--kinds", "kill,host", "--json")
    assert result.exit_code == code
    assert last_json(result)["survived"] == survived
    assert asked == [{"faults": 4, "seed": 3, "processes": 3, "kinds": ("kill", "host"), "settle_s": 120.0}]
