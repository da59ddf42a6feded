"""What a policy is asked once before anything is started: foreign code, whose mistakes are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psplatform.core.coordination.order.asking import raised_in, words_of
from psplatform.core.policy import Policy, Traits
from psplatform.errors import PsplatformError, UserCodeError


def load(policy: Policy, read: Callable[[str], bytes]) -> None:
    """Let the policy fetch what its parameters name, and see that it says what the engine must know of it.

    Raises
    ------
    ConfigurationError
        If the policy refuses its parameters.
    UserCodeError
        If it raises anything else, or has no traits; the text names the policy and the hook.
    """
    _ask(policy, "load", lambda: policy.load(read))
    traits = _ask(policy, "traits", lambda: policy.traits)
    if not isinstance(traits, Traits):
        text = f"the policy {type(policy).__name__} has {traits!r} as its traits; they must be Traits"
        raise UserCodeError(text, kind="nonsense", user_traceback="")


def check(policy: Policy, workers: int) -> None:
    """Let the policy refuse a job of `workers` workers; raises as `load` does."""
    _ask(policy, "check", lambda: policy.check(workers))


def foresee(policy: Policy, compute_s: Callable[[int, int], float]) -> None:
    """Tell the policy the times of all gradients to come; raises as `load` does."""
    _ask(policy, "foresee", lambda: policy.foresee(compute_s))


def _ask(policy: Policy, hook: str, question: Callable[[], Any]) -> Any:
    try:
        return question()
    except PsplatformError:
        raise
    except Exception as error:
        raise raised_in(words_of(policy), hook, "before anything was started", error) from error
