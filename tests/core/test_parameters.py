"""Parameters that are declared once drive validation, the command line and forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from psplatform.core.limits import nearest
from psplatform.core.parameters import Parameter, accept_all, parameter, parameters_of
from psplatform.errors import ConfigurationError


@dataclass
class Declared:
    """Every kind of parameter, and one field that is none."""

    count: int = parameter(3, minimum=1, maximum=9, help="how many")
    share: float = parameter(0.5, minimum=0.0, help="how much")
    word: str = parameter("slow", choices=("slow", "fast"), help="which")
    free: str = parameter("any", help="any text")
    switch: bool = parameter(default=False, help="whether")
    limit: int | None = parameter(None, maximum=5, help="none stands for no limit")
    hidden: int = 7


def declared(name: str) -> Parameter:
    return {one.name: one for one in parameters_of(Declared)}[name]


def test_parameters_come_in_order_of_declaration_and_other_fields_are_none() -> None:
    assert [one.name for one in parameters_of(Declared)] == ["count", "share", "word", "free", "switch", "limit"]


@pytest.mark.parametrize(
    ("name", "given", "accepted"),
    [
        ("count", "4", 4),
        ("count", 9, 9),
        ("count", 1, 1),
        ("share", 1, 1.0),
        ("share", 0, 0.0),
        ("share", "0.25", 0.25),
        ("word", "fast", "fast"),
        ("free", "none", "none"),
        ("switch", "Yes", True),
        ("switch", "0", False),
        ("switch", True, True),
        ("limit", None, None),
        ("limit", "None", None),
        ("limit", "-2", -2),
    ],
)
def test_values_are_accepted_in_their_own_type_whether_typed_or_written(name: str, given: Any, accepted: Any) -> None:
    found = declared(name).accept(given)
    assert found == accepted
    assert type(found) is type(accepted)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("count", 0, "count must be an int from 1 to 9, not 0"),
        ("count", "ten", "count must be an int from 1 to 9, not 'ten'"),
        ("count", True, "count must be an int from 1 to 9, not True"),
        ("count", 2.0, "count must be an int from 1 to 9, not 2.0"),
        ("count", None, "count must be an int from 1 to 9, not None"),
        ("count", "none", "count must be an int from 1 to 9, not 'none'"),
        ("share", math.nan, "share must be a float of at least 0, not nan"),
        ("share", "nan", "share must be a float of at least 0, not nan"),
        ("share", -0.5, "share must be a float of at least 0, not -0.5"),
        ("share", True, "share must be a float of at least 0, not True"),
        ("share", [1.0], "share must be a float of at least 0, not [1.0]"),
        ("word", "medium", "word must be 'slow' or 'fast', not 'medium'"),
        ("word", 3, "word must be 'slow' or 'fast', not 3"),
        ("switch", "maybe", "switch must be a bool, not 'maybe'"),
        ("switch", 1, "switch must be a bool, not 1"),
        ("limit", 6, "limit must be an int of at most 5, not 6"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence_that_names_parameter_and_range(
    name: str, given: Any, sentence: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        declared(name).accept(given)
    assert str(caught.value) == sentence
    assert caught.value.field == name


def test_the_description_is_plain_and_its_default_is_acceptable() -> None:
    assert declared("limit").describe() == {
        "name": "limit",
        "type": "int | None",
        "default": None,
        "range": [None, 5],
        "help": "none stands for no limit",
    }
    assert declared("word").describe()["range"] == ["slow", "fast"]
    for one in parameters_of(Declared):
        assert one.accept(one.describe()["default"]) == one.default


def test_options_are_typed_together() -> None:
    assert accept_all(Declared, {"count": "2", "limit": 1}, what="it") == {"count": 2, "limit": 1}


def test_an_unknown_option_is_refused_and_the_nearest_name_suggested() -> None:
    with pytest.raises(
        ConfigurationError, match=r"policy 'x' has no parameter \"cuont\"; did you mean \"count\"\?"
    ) as caught:
        accept_all(Declared, {"cuont": 1}, what="policy 'x'")
    assert caught.value.field == "cuont"


def test_an_owner_without_parameters_says_that_it_takes_none() -> None:
    @dataclass
    class Bare:
        other: int = 0

    with pytest.raises(ConfigurationError, match='bare has no parameter "other"; it has none'):
        accept_all(Bare, {"other": 1}, what="bare")


def test_all_names_are_suggested_where_none_is_near() -> None:
    assert nearest("zzz", ["count", "share"]) == "choose from count, share"
