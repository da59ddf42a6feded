"""Asking the policy and the schedule: foreign code, which may raise or answer what is no answer.

Either ends the run with an error that names the policy or the schedule, the hook and the event at hand.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, Final

from psplatform.core.limits import LARGEST
from psplatform.core.policy import Answer, Committed, Fate, Gradient, Policy, Scope, Verdict, View, Worker
from psplatform.core.rates import FACTOR, Schedule, is_factor
from psplatform.core.reasons import Reason
from psplatform.errors import PsplatformError, UserCodeError

_SHOWN: Final = 200  # characters

MOST_FIGURES: Final = 16
"""Figures of one decision: they are part of the log at every commit."""

LONGEST_NAME: Final = 64
"""Characters of the name of a figure, for the same reason."""

_FIGURES: Final = (
    f"at most {MOST_FIGURES} finite numbers by name, "
    f"each name of at most {LONGEST_NAME} characters, without blanks around it"
)


class PolicyFailed(Exception):
    """The policy or the schedule raised or answered nonsense; carries what the run ends with."""

    def __init__(self, failure: UserCodeError) -> None:
        super().__init__(failure)
        self.failure = failure


class Asking:
    """The policy's hooks with their answers checked.

    Attributes
    ----------
    event
        What the coordinator is handling, for errors.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._per_block = policy.traits.scope is Scope.BLOCK
        self._broken = False
        self.event: Any = None

    def admit(self, gradient: Gradient, view: View) -> Verdict:
        """Return the policy's verdict on a gradient."""
        verdict: Verdict = self._ask("admit", _is_verdict, "a Verdict", gradient, view)
        if verdict.fate is Fate.HOLD and not self._per_block:
            # Its worker may be released and write the next gradient over it.
            raise self._failed("returned HOLD from admit", "only scope BLOCK may hold gradients", self._policy)
        return verdict

    def latest(self, gradient: Gradient, view: View) -> int | None:
        """Return the last version before a commit at which the gradient would still be applied, ``None`` for no limit.

        It may be negative, where the gradient was computed on a version that nobody knows any more.
        """
        latest: int | None = self._ask("latest", _is_whole_or_none, "a whole number or None", gradient, view)
        return latest

    def pool_ready(self, view: View) -> Answer:
        """Return whether the pool is committed now."""
        answer: Answer = self._ask("pool_ready", _is_answer, "an Answer", view)
        return answer

    def may_start(self, worker: Worker, view: View) -> Answer:
        """Return whether the worker may go on."""
        answer: Answer = self._ask("may_start", _is_answer, "an Answer", worker, view)
        return answer

    def wanted(self, worker: Worker, view: View) -> int:
        """Return the version that the worker must pull."""
        least = 0 if self._per_block else view.version
        text = f"a version, {least} or newer"
        version: int = self._ask("wanted", lambda one: _is_version(one) and one >= least, text, worker, view)
        return version

    def factor(self, schedule: Schedule, updates: int, epochs: float) -> float:
        """Return the factor of the job's schedule on the learning rate."""
        return float(self._ask("factor", is_factor, FACTOR, updates, epochs, owner=schedule))

    def step_scale(self, commit: Committed, view: View) -> float:
        """Return the factor on the learning rate."""
        return float(self._ask("step_scale", is_factor, FACTOR, commit, view))

    def decision(self, view: View) -> dict[str, float]:
        """Return the figures that the policy has decided for the commit at hand."""
        figures: Mapping[str, float] = self._ask("decision", _are_figures, _FIGURES, view)
        return {name: float(value) for name, value in figures.items()}

    def on_commit(self, commit: Committed, view: View) -> None:
        """Let the policy learn, if there is anything to learn; one that has failed is left alone."""
        if commit.gradients and not self._broken:
            self._ask("on_commit", lambda answer: True, "", commit, view)

    def _ask(
        self, hook: str, accepts: Callable[[Any], bool], wanted: str, *arguments: Any, owner: Schedule | None = None
    ) -> Any:
        """Return the checked answer of a hook: the policy's, or that of another `owner`."""
        asked = self._policy if owner is None else owner
        try:
            answer = getattr(asked, hook)(*arguments)
        except Exception as error:
            self._broken = True
            raise PolicyFailed(raised_in(self._words(asked), hook, self._when, error)) from error
        if not accepts(answer):
            raise self._failed(f"returned {_shown(answer)} from {hook}", f"the hook must return {wanted}", asked)
        return answer

    def _words(self, asked: Policy | Schedule) -> str:
        return words_of(self._policy) if asked is self._policy else f"the schedule {type(asked).__name__}"

    @property
    def _when(self) -> str:
        return f"while the coordinator was handling {type(self.event).__name__}"

    def _failed(self, did: str, remedy: str, asked: Policy | Schedule) -> PolicyFailed:
        self._broken = True
        text = f"{self._words(asked)} {did} {self._when}; {remedy}"
        return PolicyFailed(UserCodeError(text, kind="nonsense", user_traceback=""))


def words_of(policy: Policy) -> str:
    """Return what errors call a policy."""
    return f"the policy {type(policy).__name__}"


def raised_in(words: str, hook: str, when: str, error: Exception) -> UserCodeError:
    """Return the error that says what the foreign code that `words` name raised in a hook, and when."""
    kind = type(error).__name__
    # What is refused in a sentence of ours needs no traceback.
    trace = "" if isinstance(error, PsplatformError) else "".join(traceback.format_exception(error))
    return UserCodeError(f"{words} raised {kind} in {hook} {when}: {error}", kind=kind, user_traceback=trace)


def _shown(answer: Any) -> str:
    # Foreign, so it may be of any length, and Python refuses to print integers of more than 4300 digits.
    try:
        return repr(answer)[:_SHOWN]
    except Exception:  # noqa: BLE001  the text of an error must not become another one
        return f"a {type(answer).__name__}"


def _is_verdict(answer: Any) -> bool:
    return (
        isinstance(answer, Verdict)
        and isinstance(answer.fate, Fate)
        and (answer.reason is None or isinstance(answer.reason, Reason))
    )


def _is_answer(answer: Any) -> bool:
    return isinstance(answer, Answer) and (answer.at is None or (_is_number(answer.at) and answer.at < math.inf))


def _is_whole(answer: Any) -> bool:
    return isinstance(answer, int) and not isinstance(answer, bool) and abs(answer) <= LARGEST


def _is_version(answer: Any) -> bool:
    return _is_whole(answer) and answer >= 0


def _is_whole_or_none(answer: Any) -> bool:
    return answer is None or _is_whole(answer)


def _are_figures(answer: Any) -> bool:
    return (
        isinstance(answer, Mapping)
        and len(answer) <= MOST_FIGURES
        and all(_is_name(name) and _is_number(one) and math.isfinite(one) for name, one in answer.items())
    )


def _is_name(answer: Any) -> bool:
    return isinstance(answer, str) and len(answer) <= LONGEST_NAME and answer.strip() == answer != ""


def _is_number(answer: Any) -> bool:
    if type(answer) is float:  # of almost every answer, and to recognise the others takes longer
        return not math.isnan(answer)
    # NumPy's numbers are real numbers too; a bool is a mistake, and so is what no float can hold.
    if not isinstance(answer, Real) or isinstance(answer, bool):
        return False
    try:
        return not math.isnan(answer)
    except OverflowError:
        return False
