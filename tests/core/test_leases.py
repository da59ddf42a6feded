"""Leases: who has been silent for too long."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from psplatform.core.supervision.leases import Leases


def test_a_lease_is_over_after_its_duration_without_a_sign_of_life() -> None:
    leases = Leases(2.0)
    leases.renew("a", 0.0)
    leases.renew("b", 0.5)
    assert leases.expire(1.9) == []
    assert leases.expire(2.0) == ["a"]
    assert leases.expire(3.0) == ["b"]


def test_a_sign_of_life_renews_a_lease() -> None:
    leases = Leases(2.0)
    leases.renew("a", 0.0)
    leases.renew("a", 1.5)
    assert leases.expire(3.0) == []
    assert leases.silence("a", 3.0) == 1.5


def test_a_lease_that_is_over_is_reported_once() -> None:
    leases = Leases(1.0)
    leases.renew("a", 0.0)
    assert leases.expire(5.0) == ["a"]
    assert leases.expire(6.0) == []


def test_the_forgotten_and_the_unknown_have_no_silence() -> None:
    leases = Leases(1.0)
    leases.renew("a", 0.0)
    leases.forget("a")
    leases.forget("never heard of")
    assert leases.expire(9.0) == []
    assert leases.silence("a", 9.0) == 0.0


STEPS = st.lists(st.tuples(st.floats(0, 3), st.sampled_from("abcd"), st.sampled_from(["renew", "forget", "expire"])))


@given(STEPS)
@settings(max_examples=200)
def test_leases_agree_with_looking_at_everybody(steps: list[tuple[float, str, str]]) -> None:
    leases, heard, now = Leases(2.0), dict[str, float](), 0.0
    for pause, name, action in steps:
        now += pause
        if action == "renew":
            leases.renew(name, now)
            heard[name] = now
        elif action == "forget":
            leases.forget(name)
            heard.pop(name, None)
        else:
            over = [one for one, at in heard.items() if now - at >= 2.0]
            assert sorted(leases.expire(now)) == sorted(over)
            for one in over:
                del heard[one]
