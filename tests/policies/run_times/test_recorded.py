"""Which rounds of a trace a model is fitted to, and what is said of a trace that cannot be used."""

from __future__ import annotations

import numpy as np
import pytest

from psplatform.errors import ConfigurationError
from psplatform.policies.run_times.recorded import Recorded, read_rounds


def trace(*rows: str, heading: str = "slot,sequence,seconds,version,censored") -> str:
    return "\n".join([heading, *rows]) + "\n"


def test_rows_of_a_version_are_a_round_whatever_their_order() -> None:
    found = read_rounds(trace("1,0,4.0,5,0", "0,1,1.0,6,0", "0,0,3.0,5,0", "1,1,2.0,6,0"), "t.csv")
    np.testing.assert_array_equal(found.times, [[3.0, 4.0], [1.0, 2.0]])
    assert found.left_out == 0


def test_a_round_in_which_somebody_was_cut_off_is_left_out() -> None:
    """A bound is not a time: a model fitted to bounds would take stragglers for fast."""
    found = read_rounds(trace("0,0,1.0,0,0", "1,0,1.0,0,1", "0,1,2.0,1,0", "1,1,3.0,1,0"), "t.csv")
    np.testing.assert_array_equal(found.times, [[2.0, 3.0]])
    assert found.left_out == 1


def test_a_round_in_which_somebody_is_missing_is_left_out() -> None:
    found = read_rounds(trace("0,0,1.0,0,0", "0,1,2.0,1,0", "1,0,3.0,1,0"), "t.csv")
    np.testing.assert_array_equal(found.times, [[2.0, 3.0]])
    assert found.left_out == 1


@pytest.mark.parametrize("censored", [("0", "0"), ("0", "1"), ("1", "0")])
def test_a_round_for_which_a_slot_had_two_workers_is_left_out(censored: tuple[str, str]) -> None:
    first, second = censored
    found = read_rounds(trace("1,0,1.0,0,0", f"0,0,1.0,0,{first}", f"0,1,2.0,0,{second}"), "t.csv")
    assert found.times.shape == (0, 2)
    assert found.left_out == 1


def test_without_versions_rows_of_a_sequence_are_a_round() -> None:
    text = trace("0,0,1.0", "0,1,2.0", "1,0,3.0", "1,1,4.0", heading="slot,sequence,seconds")
    np.testing.assert_array_equal(read_rounds(text, "t.csv").times, [[1.0, 3.0], [2.0, 4.0]])


def test_a_spreadsheets_mark_and_spaces_do_no_harm() -> None:
    text = "\ufeff" + trace(" 0 ,0, 1.5 ", heading="slot,sequence,seconds")
    np.testing.assert_array_equal(read_rounds(text, "t.csv").times, [[1.5]])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (trace("0,1.0", heading="slot,seconds"), "trace t.csv, line 1: no column sequence; begin with slot,sequence"),
        (trace("0,1.0", heading="place,duration"), "no column slot or seconds or sequence"),
        ("", "no column slot or seconds or sequence"),
        (trace("0,0,1.0,0,0", "0,1,long,1,0"), 'line 3: row: seconds="long" is not a number'),
        (trace("0,0,0.0,0,0"), "line 2: row: seconds must be a finite number above 0, not 0.0"),
        (trace("0,0,nan,0,0"), "must be a finite number above 0"),
        (trace("0,0,1.0,-1,0"), 'version="-1" is not a count'),
        (trace("x,0,1.0,0,0"), 'slot="x" is not a count'),
        (trace("0,0,1.0,0,maybe"), 'censored="maybe" is neither 0 nor 1'),
        (trace("0,0,1.0"), 'version="" is not a count'),
        (trace(), "trace t.csv has no rows; record a run first"),
        (trace("0,0,1.0,0,0", "2,0,1.0,0,0"), "trace t.csv has no slot 1; count from 0 without gaps"),
        (
            trace("0,0,1.0", "0,1,1.0", "1,0,1.0", heading="slot,sequence,seconds"),
            "has 1 rows of slot 1 and 2 of slot 0, so that rounds cannot be told apart; give each slot as many, or add",
        ),
    ],
)
def test_a_trace_that_cannot_be_used_is_refused_with_its_line_or_what_is_missing(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_rounds(text, "t.csv")
    assert sentence in str(caught.value)
    assert caught.value.field == "trace"


def test_too_few_whole_rounds_are_refused() -> None:
    recorded = Recorded(np.ones((39, 4)), left_out=7)
    recorded.require(39, "t.csv")
    with pytest.raises(
        ConfigurationError, match=r"t\.csv has 39 rounds .* all 4 workers .*\(7 others .* a fit needs 40"
    ):
        recorded.require(40, "t.csv")
