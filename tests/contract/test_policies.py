"""What every synchronisation policy keeps, whatever happens.

The suite runs over every registered policy, those of other packages included, and over some further settings of ours.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from psplatform.core.parameters import parameter, parameters_of
from psplatform.core.policy import APPLY, POOL, Policy, Traits, drop, not_yet, yes
from psplatform.core.reasons import stale
from psplatform.errors import ConfigurationError
from psplatform.policies.registry import describe_policies, make_policy, name_of, policy_names
from psplatform.testing import RandomRun, check_faults, check_policy, run_policy

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in policy_names()),
    ("asp", {"rate": "delay-adaptive"}),
    ("ssp", {"bound": 0}),
    ("ssp", {"bound": 1, "rate": "delay-adaptive"}),
    ("backup", {"k": 1}),
    ("backup", {"k": 1, "busy": "abort"}),
    ("backup", {"k": 3, "rate": "constant"}),
    ("backup", {"k": 2, "busy": "abort"}),
    ("dssp", {"lower": 0, "credit": 2}),
    ("dssp", {"lower": 0, "credit": 3, "renew": True}),
    ("elastic-bsp", {"lookahead": 1}),
    ("elastic-bsp", {"lookahead": 3, "barrier": "time"}),
    ("elastic-bsp", {"lookahead": 2, "merge": "sequential"}),
    ("elastic-bsp", {"lookahead": 2, "monitoring": False}),
    ("delay-bounded", {"max_delay": 1}),
    ("psp", {"push": 1, "pull": 0.5}),
    ("psp", {"push": 2, "pull": 0.4, "push_timeout_s": 0.3, "pull_timeout_s": 0.2, "resync": "jump"}),
    ("psp", {"push": 2, "pull": 0.6, "subset": True}),
    ("cutoff", {"predictor": "static", "c": 2, "explore": 0.2}),
    ("cutoff", {"predictor": "normal"}),
    ("cutoff", {"predictor": "forgetting", "full_rounds": 0, "samples": 4}),
]


def in_words(setting: tuple[str, dict[str, Any]]) -> str:
    return " ".join([setting[0], *(f"{name}={value}" for name, value in setting[1].items())])


every_policy = pytest.mark.parametrize("setting", SETTINGS, ids=in_words)


def maker(setting: tuple[str, dict[str, Any]]) -> Callable[[], Policy]:
    return partial(make_policy, *setting)


# --- what every policy keeps, whatever happens ---


@every_policy
def test_every_policy_keeps_the_contract(setting: tuple[str, dict[str, Any]]) -> None:
    check_policy(maker(setting))


@every_policy
def test_the_same_seed_gives_the_same_history_and_another_seed_another(setting: tuple[str, dict[str, Any]]) -> None:
    def history(seed: int) -> list[dict[str, Any]]:
        return run_policy(make_policy(*setting), RandomRun.draw(seed)).run.records

    assert history(3) == history(3)
    assert history(3) != history(4)


# --- what the contract finds ---


@dataclass
class Waits(Policy):
    """Never commits."""

    traits = Traits(exact=True)

    def admit(self, gradient: Any, view: Any) -> Any:
        return POOL

    def pool_ready(self, view: Any) -> Any:
        return not_yet("never")

    def may_start(self, worker: Any, view: Any) -> Any:
        return yes("once") if worker.version < view.version else not_yet("never")


@dataclass
class Gambles(Policy):
    """Drops a third of the gradients, by a chance that no seed decides."""

    traits = Traits(exact=False)

    def admit(self, gradient: Any, view: Any) -> Any:
        return drop(stale(0, view.version)) if random.random() < 0.3 else APPLY

    def may_start(self, worker: Any, view: Any) -> Any:
        return yes("always")


@dataclass
class Forgets(Policy):
    """Has a parameter that it does not keep as it was given."""

    bound: int = parameter(1, minimum=0, help="of nothing")
    traits = Traits(exact=False)

    def __post_init__(self) -> None:
        self.bound += 1

    def admit(self, gradient: Any, view: Any) -> Any:
        return APPLY

    def may_start(self, worker: Any, view: Any) -> Any:
        return yes("always")


@dataclass
class Unlearns(Policy):
    """Does not take up what it has learned."""

    traits = Traits(exact=False)
    seen: int = 0

    def admit(self, gradient: Any, view: Any) -> Any:
        self.seen += 1
        return APPLY

    def may_start(self, worker: Any, view: Any) -> Any:
        return yes("always")

    def state(self) -> dict[str, Any]:
        return {"seen": self.seen}


@dataclass
class Boasts(Policy):
    """Promises that no gradient is stale."""

    traits = Traits(exact=False)

    def admit(self, gradient: Any, view: Any) -> Any:
        return APPLY

    def may_start(self, worker: Any, view: Any) -> Any:
        return yes("always")

    def staleness_bound(self, workers: int) -> int:
        return 0


@dataclass
class Hurries(Policy):
    """Promises to wait for all, and goes on with two."""

    traits = Traits(exact=True, awaits_all=True)

    def admit(self, gradient: Any, view: Any) -> Any:
        label = gradient.label.version
        return POOL if label == view.version else drop(stale(label, view.version))

    def pool_ready(self, view: Any) -> Any:
        return yes("two, or all") if view.pooled >= 2 or not view.busy else not_yet("one")

    def may_start(self, worker: Any, view: Any) -> Any:
        return yes("once") if worker.version < view.version else not_yet("not yet")


@dataclass
class Raises(Boasts):
    """Raises at its third gradient."""

    def admit(self, gradient: Any, view: Any) -> Any:
        if view.version == 2:
            raise ArithmeticError("three")
        return APPLY


@dataclass
class Crowds(Boasts):
    """Wants three workers at least."""

    def check(self, workers: int) -> None:
        if workers < 3:
            raise ConfigurationError("too few", field="workers")

    def staleness_bound(self, workers: int) -> None:
        return None


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        (Waits, "seed 0 fails"),
        (Gambles, "two runs of seed 0 differ"),
        (Forgets, "does not make a policy with the same parameters"),
        (Unlearns, r"restore\(\) does not bring back"),
        (Boasts, r"a gradient of staleness \d+ was applied, and staleness_bound\(\d\) is 0"),
        (Raises, "raised ArithmeticError in admit"),
        (Hurries, r"awaits all: commit \d+ was made while slots \[.*\] were busy"),
    ],
)
def test_a_policy_that_breaks_the_contract_is_found(policy: type[Policy], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        check_policy(policy, seeds=6)


def test_a_policy_is_tried_with_as_many_workers_as_it_wants() -> None:
    check_policy(Crowds, seeds=3)
    check_faults(Crowds, trials=3)


def test_less_than_one_run_is_refused() -> None:
    with pytest.raises(ValueError, match="seeds must be at least 1, not 0"):
        check_policy(Waits, seeds=0)


def test_a_policy_that_breaks_its_runs_is_found_with_the_schedule_that_shows_it() -> None:
    with pytest.raises(AssertionError, match='is violated: .*\n.*"policy": "Waits"') as found:
        check_faults(Waits, trials=20)
    with pytest.raises(AssertionError, match="is violated: "):
        check_faults(Waits, schedule=json.loads(str(found.value).splitlines()[1]))


# --- parameters ---


@pytest.mark.parametrize("described", describe_policies(), ids=lambda one: one["name"])
def test_a_policy_describes_itself_for_forms_and_names_its_source(described: dict[str, Any]) -> None:
    policy = make_policy(described["name"])
    assert name_of(policy) == described["name"]
    assert described["title"].endswith(".")
    assert described["source"]
    for plain, one in zip(described["parameters"], parameters_of(type(policy)), strict=True):
        assert plain["help"]
        assert one.accept(plain["default"]) == plain["default"]


def test_a_policy_made_by_hand_is_checked_like_one_made_by_name() -> None:
    with pytest.raises(ConfigurationError, match="bound must be an int of at least 0, not -1"):
        type(make_policy("ssp"))(bound=-1)  # type: ignore[call-arg]
