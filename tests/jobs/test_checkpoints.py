"""When checkpoints are written: in numbers, and in the words of the command line."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import psplatform as ps
from psplatform.errors import ConfigurationError
from psplatform.jobs.checkpoints import USUAL_SECONDS, Checkpoints

RULES = [
    Checkpoints(),
    Checkpoints.never(),
    Checkpoints(200),
    Checkpoints(every_seconds=2.5, keep=1),
    Checkpoints(5, 60),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_rule_survives_its_plain_form(rule: Checkpoints) -> None:
    assert Checkpoints.from_plain(json.loads(json.dumps(rule.to_plain()))) == rule
    assert Checkpoints.from_plain(rule) is rule


def test_users_find_it_in_the_package() -> None:
    assert ps.Checkpoints is Checkpoints


def test_without_a_word_one_is_written_every_thirty_seconds() -> None:
    assert Checkpoints() == Checkpoints(every_updates=None, every_seconds=USUAL_SECONDS, keep=3)
    assert USUAL_SECONDS == 30


def test_never_writes_none() -> None:
    rule = Checkpoints.never()
    assert (rule.written, rule.every_updates, rule.every_seconds) == (False, None, None)
    assert Checkpoints().written


@pytest.mark.parametrize(
    ("plain", "rule"),
    [
        ("200", Checkpoints(200)),
        (200, Checkpoints(200)),
        ("200updates", Checkpoints(200)),
        ("10s", Checkpoints(every_seconds=10)),
        ("0.5 s", Checkpoints(every_seconds=0.5)),
        ("none", Checkpoints.never()),
        (None, Checkpoints.never()),
        ({}, Checkpoints()),
        ({"keep": "5"}, Checkpoints(keep=5)),
        ({"every": "10s", "keep": 1}, Checkpoints(every_seconds=10, keep=1)),
        ({"every": "none"}, Checkpoints.never()),
        ({"every": 200, "every_seconds": 10}, Checkpoints(200, 10)),
    ],
)
def test_words_and_mappings_describe_a_rule(plain: Any, rule: Checkpoints) -> None:
    assert Checkpoints.from_plain(plain) == rule


@pytest.mark.parametrize(
    ("rule", "text"),
    [(Checkpoints(200, 10), "every 200 updates or 10 s"), (Checkpoints(), "every 30 s"), (Checkpoints.never(), "none")],
)
def test_a_rule_can_be_read(rule: Checkpoints, text: str) -> None:
    assert str(rule) == text


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        ([200], "checkpoints must be such as ps.Checkpoints(), not [200]"),
        (True, "checkpoints must be such as ps.Checkpoints(), not True"),
        ("often", 'every="often" is not known; write updates such as 200, seconds such as 10s, or none'),
        ("10m", 'every="10m" is not known'),
        ("xs", 'every="xs" is not known'),
        ("-5", 'every="-5" is not known'),
        (0, "every_updates must be an int of at least 1, not 0"),
        ("0s", "every_seconds must be a finite number above 0, not 0.0"),
        ("nans", "every_seconds must be a finite number above 0, not nan"),
        ({"every_seconds": math.inf}, "every_seconds must be a finite number above 0, not inf"),
        ({"every_seconds": "10"}, "every_seconds must be a finite number above 0, not '10'"),
        ({"every_updates": 1.5}, "every_updates must be an int of at least 1, not 1.5"),
        ({"keep": -1}, "keep must be an int of at least 0, not -1"),
        ({"keep": "few"}, "keep must be an int of at least 0, not 'few'"),
        ({"keep": 0, "every_updates": 5}, "keep must be at least 1 where they are written"),
        ({"every": "none", "keep": 3}, "nothing is kept where none is written"),
        ({"every": "5", "every_updates": 5}, "every=5 and every_updates say the same"),
        ({"every_update": 5}, 'checkpoints have no "every_update"; did you mean "every_updates"?'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(plain: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Checkpoints.from_plain(plain)
    assert sentence in str(caught.value)
    assert caught.value.field == "checkpoints"
