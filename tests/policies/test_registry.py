"""Finding policies by entry point and building them from options."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from psplatform.errors import ConfigurationError
from psplatform.policies import registry
from psplatform.policies.backup import BackupWorkers
from psplatform.policies.bsp import BulkSynchronous
from psplatform.policies.registry import make_policy, name_of, policy_class, policy_names


def test_ours_are_registered() -> None:
    assert set(policy_names()) >= {"asp", "backup", "bsp", "ssp"}
    assert policy_class("bsp") is BulkSynchronous


def test_an_unknown_policy_is_refused_and_the_nearest_suggested() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown policy 'bspp'; did you mean \"bsp\"\?") as caught:
        make_policy("bspp")
    assert caught.value.field == "policy"


def test_options_are_checked_under_the_name_of_the_policy() -> None:
    with pytest.raises(ConfigurationError, match='policy \'backup\' has no parameter "busi"; did you mean "busy"'):
        make_policy("backup", {"busi": "abort"})


def test_a_k_above_the_number_of_workers_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="k must be at most the number of workers: k = 5, workers = 4"):
        make_policy("backup", {"k": 5}).check(4)
    make_policy("backup", {"k": 4}).check(4)
    make_policy("backup").check(1)


def test_by_default_backup_waits_for_all_but_one() -> None:
    assert BackupWorkers().k is None


def test_a_policy_that_is_not_registered_goes_by_its_class() -> None:
    class Mine(BulkSynchronous):
        pass

    assert name_of(Mine()) == "Mine"
    assert name_of(BulkSynchronous()) == "bsp"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("psplatform.nowhere:Policy", "is registered as psplatform.nowhere:Policy but cannot be imported"),
        ("psplatform.policies.bsp:Missing", "cannot be imported"),
        ("psplatform.policies.bsp:admit_current", "is not a Policy class"),
    ],
)
def test_an_entry_point_that_leads_nowhere_says_so(value: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint(name="broken", value=value, group=registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    with pytest.raises(ConfigurationError, match=sentence) as caught:
        make_policy("broken")
    assert caught.value.field == "policy"
