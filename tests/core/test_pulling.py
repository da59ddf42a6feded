"""Pulling: one answer of every shard, under exact pulls all at one version."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.core.protocol.messages import Label, Pull, Pulled
from psplatform.core.workers.pulling import Pulling


def answer(pull: Pull, version: int | None = None, epoch: int = 1) -> Pulled:
    return Pulled(pull.shard, pull.request, pull.version if version is None else version, epoch)


@pytest.mark.parametrize("exact", [True, False])
def test_every_shard_is_asked_for_the_version(exact: bool) -> None:
    pulls = Pulling("w", 3, exact).begin(7)
    assert [(pull.member, pull.shard, pull.version) for pull in pulls] == [("w", 0, 7), ("w", 1, 7), ("w", 2, 7)]
    assert len({pull.request for pull in pulls}) == 3


def test_there_is_no_label_before_every_shard_has_answered() -> None:
    pulling = Pulling("w", 2, exact=False)
    assert pulling.label is None
    first, second = pulling.begin(1)
    pulling.on_pulled(answer(second, 3, epoch=2))
    assert pulling.label is None
    assert pulling.waiting_for == [0]
    pulling.on_pulled(answer(first, 1))
    assert pulling.label == Label((1, 3), (1, 2))
    assert pulling.waiting_for == []


def test_an_exact_pull_asks_the_shards_that_lag_behind_the_newest_answer_again() -> None:
    pulling = Pulling("w", 3, exact=True)
    a, b, c = pulling.begin(1)
    assert pulling.on_pulled(answer(a, 1)) == []
    assert pulling.on_pulled(answer(b, 2)) == []
    again = pulling.on_pulled(answer(c, 1))
    assert [(pull.shard, pull.version) for pull in again] == [(0, 2), (2, 2)]
    assert pulling.label is None


def test_an_exact_pull_chases_until_all_agree() -> None:
    """A shard may have moved on once more by the time it is asked again."""
    pulling = Pulling("w", 2, exact=True)
    a, b = pulling.begin(1)
    pulling.on_pulled(answer(a, 2))
    (again,) = pulling.on_pulled(answer(b, 1))
    (chase,) = pulling.on_pulled(answer(again, 3))
    assert (chase.shard, chase.version) == (0, 3)
    assert pulling.on_pulled(answer(chase, 3)) == []
    assert pulling.label == Label((3, 3), (1, 1))


def test_an_answer_of_a_server_that_was_replaced_is_none() -> None:
    """Even to the newest request: whoever gives it under an epoch that is over may show what is lost."""
    pulling = Pulling("w", 1, exact=True)
    pulling.begin(3)
    (again,) = pulling.moved(0, 2, pulling=True)
    assert not pulling.expects(answer(again, 4, epoch=1))
    pulling.on_pulled(answer(again, 4, epoch=1))
    assert pulling.label is None
    pulling.on_pulled(answer(again, 3, epoch=2))
    assert pulling.label == Label((3,), (2,))


def test_an_answer_to_a_pull_under_way_is_asked_for_again_when_its_server_is_replaced() -> None:
    pulling = Pulling("w", 2, exact=True)
    first, second = pulling.begin(3)
    pulling.on_pulled(answer(first, 3))
    (again,) = pulling.moved(0, 2, pulling=True)
    assert (again.shard, again.version, again.epoch) == (0, 3, 2)
    pulling.on_pulled(answer(second, 3))
    assert not pulling.complete
    pulling.on_pulled(answer(again, 3, epoch=2))
    assert pulling.label == Label((3, 3), (2, 1))


def test_answers_to_void_requests_change_nothing() -> None:
    pulling = Pulling("w", 1, exact=True)
    (old,) = pulling.begin(1)
    (new,) = pulling.begin(2)
    assert not pulling.expects(answer(old))
    assert pulling.on_pulled(answer(old)) == []
    assert pulling.label is None
    assert pulling.expects(answer(new))
    pulling.on_pulled(answer(new))
    assert not pulling.expects(answer(new, 9))
    pulling.on_pulled(answer(new, 9))
    assert pulling.label == Label((2,), (1,))


def test_a_cancelled_pull_expects_nothing_and_has_no_label() -> None:
    pulling = Pulling("w", 2, exact=False)
    first, second = pulling.begin(1)
    pulling.on_pulled(answer(first))
    pulling.cancel()
    assert not pulling.expects(answer(second))
    assert pulling.label is None


@given(shards=st.integers(1, 5), data=st.data())
@settings(max_examples=150)
def test_an_exact_pull_ends_at_one_version_whatever_shards_show_meanwhile(shards: int, data: st.DataObject) -> None:
    """Shards move up to a last version; requests are answered in any order, repeats included."""
    last = 6
    shown = [data.draw(st.integers(0, last)) for _ in range(shards)]
    pulling = Pulling("w", shards, exact=True)
    requests, asked = pulling.begin(0), []
    while requests:
        pull = requests.pop(data.draw(st.integers(0, len(requests) - 1)))
        shown[pull.shard] = data.draw(st.integers(max(shown[pull.shard], pull.version), last))
        given_answer = answer(pull, shown[pull.shard])
        asked.append(given_answer)
        requests += pulling.on_pulled(given_answer)
        requests += pulling.on_pulled(data.draw(st.sampled_from(asked)))
    label = pulling.label
    assert label is not None
    assert len(set(label.versions)) == 1
