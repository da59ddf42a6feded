"""A policy that fails before the start is named with the hook, whoever asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import psplatform as ps
from psplatform.errors import ConfigurationError, UserCodeError
from psplatform.policies.asp import Asynchronous


def oops(*arguments: Any) -> Any:
    raise KeyError("oops")


def unfit(*arguments: Any) -> Any:
    raise ConfigurationError("not with so few workers", field="workers")


def odd(hook: str, does: Callable[..., Any]) -> Asynchronous:
    """Make a policy that does something else in one hook."""
    body = property(does) if hook == "traits" else does
    return type("Odd", (Asynchronous,), {hook: body})()


@pytest.mark.parametrize("hook", ["load", "traits", "check", "foresee"])
def test_a_hook_that_raises_before_the_start_is_named(hook: str) -> None:
    job = ps.Job(workload="mlp", policy=odd(hook, oops), workers=2)
    said = f"the policy Odd raised KeyError in {hook} before anything was started: 'oops'"
    with pytest.raises(UserCodeError, match=said) as caught:
        ps.simulate(job, ps.Conditions(timing_only=True))
    assert "in oops" in caught.value.user_traceback


def test_traits_that_are_none_are_refused() -> None:
    job = ps.Job(workload="mlp", policy=odd("traits", lambda policy: 3), workers=2)
    with pytest.raises(UserCodeError, match="the policy Odd has 3 as its traits; they must be Traits"):
        ps.simulate(job, ps.Conditions(timing_only=True))


def test_a_policy_that_refuses_the_job_is_understood() -> None:
    job = ps.Job(workload="mlp", policy=odd("check", unfit), workers=2)
    with pytest.raises(ConfigurationError, match="not with so few workers"):
        ps.simulate(job, ps.Conditions(timing_only=True))
