"""The external checker: a history in good order passes, and each damage breaks the guarantee that it is about."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import psplatform.bench.history
from psplatform.bench.history import check
from psplatform.bench.history import guarantees as of
from psplatform.bench.history.guarantees import GUARANTEES

Violations = Callable[[Any], list[str]]


def test_a_history_in_good_order_breaks_nothing(tale: Any, violations: Violations) -> None:
    assert violations(tale) == []


def test_it_is_counted_what_was_looked_at(tale: Any, tmp_path: Path) -> None:
    counts = check(tale.write(tmp_path)).counts
    assert (counts["lives"], counts["copies"], counts["workers"], counts["coordinators"]) == (2, 6, 2, 2)
    assert (counts["servers"], counts["publish"], counts["serves"], counts["computes"]) == (5, 14, 1, 14)


def two_servers(tale: Any) -> None:
    tale.begin("server-0b", "copy", life=1, shard=0, shards=2, serving=True)
    tale.state("server-0b", "stands", 1, 0, "s0p0")


def shown_out_of_order(tale: Any) -> None:
    tale.find("server-1", "publish", position=4)["position"] = 5


def version_goes_back(tale: Any) -> None:
    tale.find("server-1", "publish", position=7)["version"] = 6


def shown_is_not_staged(tale: Any) -> None:
    tale.find("server-1", "publish", position=7)["state"] = "other"


def staged_twice(tale: Any) -> None:
    tale.files["server-1"].append(tale.find("server-1", "staged", position=7))


def applied_twice(tale: Any) -> None:
    for file in ("replica-0", "server-1"):
        tale.find(file, "staged", position=7)["applied"].append([0, 2, "worker-0"])


def other_gradients_on_one_shard(tale: Any) -> None:
    tale.find("server-1", "staged", position=3)["applied"].pop()


def losses_are_not_put_down(tale: Any) -> None:
    tale.files["coordinator-1"].remove(tale.find("coordinator-1", "lost positions"))


def nobody_computed_it(tale: Any) -> None:
    tale.files["worker-1"].remove(tale.find("worker-1", "computes", sequence=3))


def replica_has_another_state(tale: Any) -> None:
    tale.find("replica-1", "loaded", position=4)["state"] = "other"


def replica_stands_between_steps(tale: Any) -> None:
    tale.find("replica-1", "loaded", position=4)["position"] = 40


def promoted_with_another_state(tale: Any) -> None:
    tale.find("replica-0", "serves")["digest"] = "other"


def promoted_without_what_it_had(tale: Any) -> None:
    tale.files["replica-0"].remove(tale.find("replica-0", "loaded", position=3))


def account_beyond_the_bound(tale: Any) -> None:
    tale.find("server-1", "publish", position=7)["lag"] = 3


def replica_lacks_more_than_counted(tale: Any) -> None:
    tale.find("replica-1", "loaded", position=5)["at"] += 1000.0


def lost_beyond_the_bound(tale: Any) -> None:
    """The replica had position 2 only, and everything that is said of it is in order."""
    tale.files["replica-0"].remove(tale.find("replica-0", "loaded", position=3))
    tale.find("replica-0", "serves").update(position=2, version=2, digest="s0p2", state="s0p2+")


def pulled_content_differs(tale: Any) -> None:
    tale.find("worker-0", "pulled", shard=1, version=4)["digest"] = "torn"


def pulled_what_was_never_shown(tale: Any) -> None:
    tale.find("worker-0", "pulled", shard=1, version=6)["version"] = 60


def pulled_an_older_version(tale: Any) -> None:
    tale.files["worker-0"].append(tale.find("worker-0", "pulled", shard=1, version=2))


def pulled_of_the_server_before(tale: Any) -> None:
    tale.files["worker-0"].append(tale.find("worker-0", "pulled", shard=0, version=2))


def answered_after_its_replacement(tale: Any) -> None:
    tale.note("server-0", "answered", member="worker-0", request=9, epoch=1, version=5)


def took_what_a_replaced_server_showed(tale: Any) -> None:
    tale.note("worker-0", "took", shard=0, epoch=1, version=5)


def pulled_what_was_shown_after_a_replacement(tale: Any) -> None:
    tale.find("server-0", "publish", position=3)["at"] += 1000.0


def checkpoint_of_two_positions(tale: Any) -> None:
    place = tale.find("replica-1", "archived")
    place.update(position=4, version=4, digest="s1p4", state="s1p4+")


def checkpoint_without_a_shard(tale: Any) -> None:
    tale.files["replica-1"].remove(tale.find("replica-1", "archived"))


def checkpoint_of_no_state(tale: Any) -> None:
    tale.find("replica-1", "archived")["state"] = "mixed"


def recovered_from_an_older_one(tale: Any) -> None:
    for shard in (0, 1):
        tale.find(f"again-{shard}", "stands").update(position=0, version=0)


def computed_on_an_old_version(tale: Any) -> None:
    tale.find("worker-0", "computes", sequence=4)["digests"] = ["s0p2", "s1p2"]


def a_round_without_a_worker(tale: Any) -> None:
    for file in ("server-0", "server-1"):
        tale.find(file, "staged", position=2)["applied"].pop()


def a_batch_twice(tale: Any) -> None:
    tale.find("worker-0", "computes", sequence=7)["ticket"] = [1, 2]


def two_coordinators(tale: Any) -> None:
    tale.begin("coordinator-1b", "coordinator", term=1)


@pytest.mark.parametrize(
    ("damage", "guarantee"),
    [
        (two_servers, of.ONE_SERVER),
        (shown_out_of_order, of.ONE_ORDER),
        (version_goes_back, of.ONE_ORDER),
        (shown_is_not_staged, of.ONE_ORDER),
        (staged_twice, of.ONE_ORDER),
        (applied_twice, of.ONCE),
        (other_gradients_on_one_shard, of.EVERYWHERE),
        (losses_are_not_put_down, of.EVERYWHERE),
        (nobody_computed_it, of.COMPUTED),
        (replica_has_another_state, of.PREFIX),
        (replica_stands_between_steps, of.PREFIX),
        (promoted_with_another_state, of.PROMOTION),
        (promoted_without_what_it_had, of.PROMOTION),
        (account_beyond_the_bound, of.BOUND),
        (replica_lacks_more_than_counted, of.BOUND),
        (lost_beyond_the_bound, of.LOSS),
        (pulled_content_differs, of.CONTENT),
        (pulled_what_was_never_shown, of.CONTENT),
        (pulled_an_older_version, of.NEVER_BACK),
        (pulled_of_the_server_before, of.NEVER_BACK),
        (answered_after_its_replacement, of.FENCING),
        (took_what_a_replaced_server_showed, of.FENCING),
        (pulled_what_was_shown_after_a_replacement, of.FENCING),
        (checkpoint_of_two_positions, of.CHECKPOINT),
        (checkpoint_without_a_shard, of.CHECKPOINT),
        (checkpoint_of_no_state, of.CHECKPOINT),
        (recovered_from_an_older_one, of.RECOVERY),
        (computed_on_an_old_version, of.ROUND),
        (a_round_without_a_worker, of.ROUND),
        (a_batch_twice, of.TICKET),
        (two_coordinators, of.ONE_COORDINATOR),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_a_damage_breaks_the_guarantee_that_it_is_about(
    tale: Any, violations: Violations, damage: Callable[[Any], None], guarantee: str
) -> None:
    damage(tale)
    assert guarantee in {one.partition(":")[0] for one in violations(tale)}


def test_every_guarantee_has_a_damage_that_breaks_it() -> None:
    marks = test_a_damage_breaks_the_guarantee_that_it_is_about.pytestmark  # type: ignore[attr-defined]
    assert {guarantee for _, guarantee in marks[0].args[1]} | {of.WHOLE} == set(GUARANTEES)


def test_a_record_cut_off_by_a_kill_is_no_flaw_and_one_within_is(tale: Any, tmp_path: Path) -> None:
    folder = tale.write(tmp_path)
    path = folder / "server-1.jsonl"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + '{"kind": "publ', encoding="utf-8")
    assert check(folder).violations == []
    path.write_text(text.replace('"staged"', '"sta', 1), encoding="utf-8")
    assert of.WHOLE in {one.partition(":")[0] for one in check(folder).violations}


@pytest.mark.parametrize(
    ("bound", "unit", "holds"), [(2, "updates", True), (1, "updates", False), (0.1, "norm", False)]
)
def test_a_bound_that_is_given_is_the_one_that_is_checked(
    tale: Any, tmp_path: Path, bound: float, unit: str, holds: bool
) -> None:
    assert (check(tale.write(tmp_path), bound=bound, unit=unit).violations == []) is holds


def test_workers_of_one_slot_are_told_apart(tale: Any, violations: Violations) -> None:
    """A coordinator that is cut off and replaced gave the slot of a worker to another: what that computed is unused."""
    tale.begin("worker-9", "worker", life=1)
    digests = tale.find("worker-0", "computes", sequence=7)["digests"]
    tale.note("worker-9", "computes", slot=0, sequence=7, ticket=[1, 2], digests=["s0p2", *digests[1:]])
    assert violations(tale) == []
    for file in ("replica-0", "server-1"):
        tale.find(file, "staged", position=7)["applied"][0] = [0, 7, "worker-9"]
    assert {of.TICKET, of.ROUND} <= {one.partition(":")[0] for one in violations(tale)}


def test_a_replica_may_stand_where_its_server_passed_over_a_position(tale: Any, violations: Violations) -> None:
    """It has the state before it then: nothing was applied."""
    tale.begin("replica-0-2", "copy", life=1, shard=0, shards=2, serving=False)
    tale.state("replica-0-2", "stands", 0, 0, "s0p0")
    tale.state("replica-0-2", "loaded", 2, 5, "s0p3", server="replica-0", number=1, by="state")
    assert violations(tale) == []
    tale.find("replica-0-2", "loaded")["digest"] = "s0p4"
    assert {one.partition(":")[0] for one in violations(tale)} == {of.PREFIX}


def test_another_policy_promises_no_rounds(tale: Any, tmp_path: Path) -> None:
    computed_on_an_old_version(tale)
    assert check(tale.write(tmp_path), policy="asp").violations == []


def test_the_command_prints_what_it_found(tale: Any, tmp_path: Path) -> None:
    answered_after_its_replacement(tale)
    command = [sys.executable, "-m", "psplatform.bench.history", str(tale.write(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert list(said["broken"]) == [of.FENCING]
    assert said["broken"][of.FENCING] == GUARANTEES[of.FENCING]


def test_the_checker_shares_no_code_with_what_decides() -> None:
    """It may not be misled by what it checks."""
    for file in Path(psplatform.bench.history.__file__).parent.glob("*.py"):
        imported = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        names = [node.module or "" for node in imported if isinstance(node, ast.ImportFrom)]
        names += [alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names]
        own = [name for name in names if name.startswith("psplatform") and "bench.history" not in name]
        assert own == [], file.name
