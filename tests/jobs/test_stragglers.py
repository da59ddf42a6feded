"""Slowness that is added to workers and servers."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psplatform.errors import ConfigurationError
from psplatform.jobs.distributions import Constant, ShiftedExponential, Uniform
from psplatform.jobs.stragglers import SlowServers, Stragglers, read_trace

_COUNTS = st.integers(0, 2**31)
_TRACE = "slot,sequence,seconds\n0,0,0.1\n0,1,0.2\n1,0,0.3\n"


def test_without_a_word_nothing_is_slowed() -> None:
    """No target, no factor."""
    assert Stragglers().iteration_seconds(0, 0, 0) is None
    assert Stragglers().slow_down(0, 0, 0) == 1.0


@given(_COUNTS, _COUNTS, _COUNTS)
def test_slowness_depends_on_seed_slot_and_sequence_only(seed: int, slot: int, sequence: int) -> None:
    """Two processes agree about an iteration; its neighbours are different ones."""
    one, other = (Stragglers(ShiftedExponential(0, 1), slow_chance=0.5, slow_factor=2) for _ in range(2))
    seconds = one.iteration_seconds(seed, slot, sequence)
    assert seconds == other.iteration_seconds(seed, slot, sequence)
    assert one.slow_down(seed, slot, sequence) == other.slow_down(seed, slot, sequence)
    for neighbour in ((seed + 1, slot, sequence), (seed, slot + 1, sequence), (seed, slot, sequence + 1)):
        assert seconds != one.iteration_seconds(*neighbour)


def test_targets_follow_the_distribution() -> None:
    """Over many slots and sequences the mean is that of the distribution, within four standard errors."""
    stragglers = Stragglers(Uniform(1, 3))
    times = [stragglers.iteration_seconds(3, slot, sequence) or 0 for slot in range(40) for sequence in range(50)]
    assert sum(times) / len(times) == pytest.approx(2, abs=4 * 2 / math.sqrt(12 * len(times)))


def test_slow_iterations_come_with_their_chance() -> None:
    """A slot's factor always counts, the slow one with its chance, and slots beyond the list are as fast as can be."""
    stragglers = Stragglers(factors=(1, 2), slow_chance=0.1, slow_factor=4)
    for slot, steady in ((0, 1), (1, 2), (2, 1)):
        found = Counter(stragglers.slow_down(5, slot, sequence) for sequence in range(2000))
        assert set(found) == {steady, 4 * steady}
        assert found[4 * steady] == pytest.approx(200, abs=4 * math.sqrt(2000 * 0.1 * 0.9))


def test_being_slow_by_chance_says_nothing_about_the_target() -> None:
    """The two come from independent streams."""
    stragglers = Stragglers(Uniform(0, 1), slow_chance=0.5, slow_factor=2)
    slow = [stragglers.iteration_seconds(1, 0, n) or 0 for n in range(2000) if stragglers.slow_down(1, 0, n) > 1]
    assert sum(slow) / len(slow) == pytest.approx(0.5, abs=4 / math.sqrt(12 * len(slow)))


def test_a_trace_gives_the_targets_it_recorded() -> None:
    """A run that outlasts the trace begins it again; slots that were not recorded have no target."""
    stragglers = Stragglers(trace=read_trace(_TRACE, "t.csv"))
    assert [stragglers.iteration_seconds(0, 0, sequence) for sequence in range(3)] == [0.1, 0.2, 0.1]
    assert stragglers.iteration_seconds(0, 1, 5) == 0.3
    assert stragglers.iteration_seconds(0, 2, 0) is None


def test_clauses_are_read_in_any_order() -> None:
    """One line describes all kinds of slowness."""
    text = "factors:1, 1,2 ; shifted-exponential:shift=0.02,mean=0.05; slow:chance=0.1,factor=4;"
    assert Stragglers.parse(text) == Stragglers(ShiftedExponential(0.02, 0.05), (1, 1, 2), 0.1, 4)
    assert Stragglers.parse("constant:seconds=1") == Stragglers(Constant(1))
    assert Stragglers.parse("") == Stragglers()


def test_a_trace_is_read_by_the_caller() -> None:
    """The text of the file is asked for by name, and other clauses go with it."""
    stragglers = Stragglers.parse("trace:C:/t.csv;factors:2", read={"C:/t.csv": _TRACE}.__getitem__)
    assert stragglers == Stragglers(factors=(2,), trace=((0.1, 0.2), (0.3,)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slwo:chance=1,factor=2", '"slwo" is no kind of slowness; did you mean "slow"?'),
        ("gauss:mean=1", '"gauss" is no kind of slowness; choose from constant'),
        ("uniform:low=1", "uniform lacks high"),
        ("constant:seconds=1;uniform:low=1,high=2", '"uniform:low=1,high=2" is a second distribution; keep one'),
        ("slow:chance=1,factor=2;slow:chance=1,factor=2", "is a second slow; keep one"),
        ("slow:chance=1", "slow lacks factor; write chance=...,factor=..."),
        ("slow:chance=1.5,factor=2", "slow_chance must be a float from 0 to 1, not 1.5"),
        ("slow:chance=-1,factor=2", "slow_chance must be a float from 0 to 1, not -1.0"),
        ("slow:chance=0.5,factor=0", "slow_factor must be a finite number above 0, not 0.0"),
        ("factors:1,two", 'factors: slot 1="two" is not a number'),
        ("factors:", 'factors: slot 0="" is not a number'),
        ("factors:1,nan", "factors must be finite numbers above 0, not (1.0, nan)"),
        ("trace:no.csv", "trace no.csv cannot be read (nothing there); name a CSV file"),
        ("trace:t.csv;constant:seconds=1", "a trace and a distribution both set the run time"),
    ],
)
def test_bad_words_about_workers_end_in_one_clear_sentence(text: str, sentence: str) -> None:
    """The error names the option once, the part that is wrong, and the remedy."""

    def read(name: str) -> str:
        if name != "t.csv":
            raise OSError("nothing there")
        return _TRACE

    with pytest.raises(ConfigurationError) as caught:
        Stragglers.parse(text, field="stragglers", read=read)
    assert str(caught.value).count("stragglers: ") == 1
    assert sentence in str(caught.value)
    assert caught.value.field == "stragglers"


def test_a_trace_without_a_reader_is_refused() -> None:
    """Where files cannot be read the error says so."""
    with pytest.raises(ConfigurationError, match="cannot be read here"):
        Stragglers.parse("trace:t.csv")


def test_the_rows_of_a_trace_may_come_in_any_order() -> None:
    """Columns too, and columns that nobody asked for are ignored."""
    assert read_trace("seconds,slot,host,sequence\n2,1,b,0\n1,0,a,1\n0.5,0,a,0\n", "t") == ((0.5, 1.0), (2.0,))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("", "line 1: no column slot or sequence or seconds; begin with slot,sequence,seconds"),
        ("slot,seconds\n", "line 1: no column sequence"),
        ("slot,sequence,seconds\n", "has no rows"),
        ("slot,sequence,seconds\n0,0,1\nx,1,1\n", 'line 3: row: slot="x" is not a count'),
        ("slot,sequence,seconds\n0,-1,1\n", 'line 2: row: sequence="-1" is not a count'),
        ("slot,sequence,seconds\n0,0,fast\n", 'line 2: row: seconds="fast" is not a number'),
        ("slot,sequence,seconds\n0,0,-1\n", "line 2: row: seconds must be a finite number of at least 0, not -1.0"),
        ("slot,sequence,seconds\n0,0\n", 'line 2: row: seconds="" is not a number'),
        ("slot,sequence,seconds\n0,0,1\n0,0,2\n", "line 3: slot 0 has sequence 0 twice; keep one of the rows"),
        ("slot,sequence,seconds\n1,0,1\n", "has no slot 0; count from 0 without gaps"),
        ("slot,sequence,seconds\n0,0,1\n0,2,1\n", "slot 0 has no sequence 1; count from 0 without gaps"),
        ("slot,sequence,seconds\n0,0,1\n0,9999999999,1\n", 'line 3: row: sequence="9999999999" is not a count'),
        (f"slot,sequence,seconds\n0,{'9' * 200_000},1\n", "field larger than field limit"),
    ],
)
def test_a_bad_trace_is_refused_by_line(rows: str, sentence: str) -> None:
    """The error names the trace, the line, and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        read_trace(rows, "t.csv")
    assert str(caught.value).startswith("trace t.csv")
    assert sentence in str(caught.value)


@given(st.text())
def test_any_text_is_a_trace_or_a_configuration_error(text: str) -> None:
    """No file ends in another error."""
    for rows in (text, f"slot,sequence,seconds\n{text}"):
        with suppress(ConfigurationError):
            assert read_trace(rows, "t.csv")


def test_only_the_named_servers_are_slow_and_only_by_chance() -> None:
    """A request is delayed by all the seconds or not at all, the same whenever it is asked."""
    servers = SlowServers.parse("shards=0+2,seconds=1.5,chance=0.05")
    assert servers == SlowServers((0, 2), 1.5, 0.05)
    delays = [servers.delay(9, 2, request) for request in range(4000)]
    assert Counter(delays)[1.5] == pytest.approx(200, abs=4 * math.sqrt(4000 * 0.05 * 0.95))
    assert set(delays) == {0.0, 1.5}
    assert delays == [servers.delay(9, 2, request) for request in range(4000)]
    assert delays != [servers.delay(9, 0, request) for request in range(4000)]
    assert not any(servers.delay(9, 1, request) for request in range(4000))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "slow servers lacks shards and seconds and chance; write shards=...,seconds=...,chance=..."),
        ("shards=0;2,seconds=1,chance=1", 'shards="0;2" is not a count'),
        ("shards=-1,seconds=1,chance=1", 'shards="-1" is not a count'),
        ("shards=0,seconds=nan,chance=1", "seconds must be a finite number of at least 0, not nan"),
        ("shards=0,seconds=1,chance=2", "chance must be a float from 0 to 1, not 2.0"),
        ("shards=0,second=1,chance=1", 'has no "second"; did you mean "seconds"?'),
    ],
)
def test_bad_words_about_servers_end_in_one_clear_sentence(text: str, sentence: str) -> None:
    """The error names the option, the part that is wrong, and the remedy."""
    with pytest.raises(ConfigurationError) as caught:
        SlowServers.parse(text, field="slow_servers")
    assert str(caught.value).startswith("slow_servers: slow servers")
    assert sentence in str(caught.value)
    assert caught.value.field == "slow_servers"
