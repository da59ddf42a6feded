"""Checkpoints on the page of failures: which can be recovered from, and whether they are whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from psplatform.client.runs.listing import look_at
from psplatform.dashboard.pages.actions import recover_arguments
from psplatform.errors import ConfigurationError

Check = Callable[[AppTest], None]


@pytest.mark.parametrize("number", ["../..", "1", None, 1.5])
def test_a_checkpoint_to_recover_from_is_a_number(shelf: Any, number: Any) -> None:
    with pytest.raises(ConfigurationError, match="a checkpoint has a number"):
        recover_arguments(look_at(shelf.recoverable("digits-a")), number, {})


def test_checkpoints_are_verified(bench: Any, shelf: Any, healthy: Check) -> None:
    store = shelf.recoverable("digits-a")
    app = bench.show("failures").button(key="verify").click().run()
    healthy(app)
    table = next(one.value for one in app.dataframe if "verified" in one.value.columns)
    assert table["verified"].tolist() == ["every byte is as it was written", ""]
    part = next(one for one in Path(store, "checkpoints").rglob("*") if one.is_file() and "00000001" in str(one))
    part.write_bytes(b"x" + part.read_bytes()[1:])
    healthy(bench.show("failures"))


def test_a_checkpoint_is_verified_though_another_page_is_turned_to_at_once(shelf: Any, bench: Any) -> None:
    shelf.recoverable("digits-a")
    app = bench.show("failures")
    app.selectbox(key="verify number").select(1)
    app.button(key="verify").click()
    app.args = ("overview",)
    app.run()
    assert not app.exception
    (said,) = app.session_state["verified"].values()
    assert said == "every byte is as it was written"
