"""What holds of every run, whatever its policy decides, and what a policy itself promises.

Much of it the engine keeps, whatever a policy answers; it is checked all the same, because a policy may find a way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any, Final

import msgpack

from psplatform.core.parameters import parameters_of
from psplatform.core.policy import Policy
from psplatform.errors import ConfigurationError
from psplatform.policies.registry import parameter_values
from psplatform.testing.random_runs import FinishedRun, MakePolicy, RandomRun, check_runs, least_workers, run_policy

SEEDS: Final = 24
"""Random runs in which each promise is looked at: a few seconds."""

_FEW: Final = 4
"""Of them, those that are run twice."""


def check_policy(make: MakePolicy, *, seeds: int = SEEDS) -> None:
    """Return if the policy keeps the contract; call it in a test of your own.

    Checked are the promises of `CONTRACT` in runs of that many seeds; that a run depends on its seed and nothing else;
    that no gradient is staler than `Policy.staleness_bound` says where no worker joins or leaves; that what the policy
    has learned survives a checkpoint; and that its parameters are described, can be written down, and are the same when
    read again.  In the runs workers are lost: a policy must go on with one of them.

    Parameters
    ----------
    make
        Makes the policy anew for each run, because it learns: its class, or ``lambda: Deadline(seconds=0.2)``.
    seeds
        How many random runs are looked at for each promise.

    Raises
    ------
    ValueError
        If `seeds` is below 1.
    AssertionError
        If it does not: names the promise, the seed, and the run, as small as leaving things out makes it.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {seeds}")

    def check(run: FinishedRun) -> None:
        check_contract(run)
        _check_learned(make, run)

    check_runs(make, check, range(seeds), calm=False)
    check_runs(make, _check_bound, range(seeds), calm=True)
    least = least_workers(make)
    for seed in range(min(seeds, _FEW)):
        same, again = (run_policy(make(), RandomRun.draw(seed, least)).run.records for _ in range(2))
        text = "a policy draws from a seed of its own and keeps nothing between runs"
        _require(same == again, f"two runs of seed {seed} differ: {text}")
    _check_parameters(make())


def _check_parameters(policy: Policy) -> None:
    values = parameter_values(policy)
    for one in parameters_of(type(policy)):
        _require(bool(one.help), f"parameter {one.name} has no help")
    texts = {name: _written(value) for name, value in values.items()}
    for given in (values, texts):
        try:
            again = parameter_values(type(policy)(**given))
        except ConfigurationError as refused:
            raise AssertionError(f"its own parameters {given} are refused: {refused}") from refused
        _require(again == values, f"{given} does not make a policy with the same parameters but with {again}")


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_learned(make: MakePolicy, run: FinishedRun) -> None:
    learned = run.run.coordinator.state.policy.state()
    try:
        written = msgpack.packb(learned)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"state() returns what no checkpoint can hold: {error}") from error
    successor = make()
    successor.restore(msgpack.unpackb(written))
    _require(msgpack.packb(successor.state()) == written, "restore() does not bring back what state() returned")


def _check_bound(run: FinishedRun) -> None:
    policy, workers = run.run.coordinator.state.policy, run.run.plan.workers
    bound = policy.staleness_bound(workers)
    worst = max((max(one["staleness"], default=0) for one in run.of_kind("commit")), default=0)
    text = f"a gradient of staleness {worst} was applied, and staleness_bound({workers}) is {bound}"
    _require(bound is None or worst <= bound, text)


def check_order(run: FinishedRun) -> None:
    """Check that versions grow by one, or by the gradients of a sum, and that the run ends as asked."""
    ended = f"the run ended with {run.outcome!r}: {run.failure or run.detail}"
    _require(run.outcome == "updates", ended)
    for commits in run.orders():
        counted = list(range(1, len(commits) + 1))
        made = [len(one["slots"]) if one["versions"] > 1 else 1 for one in commits]
        _require([one["version"] for one in commits] == list(accumulate(made)), "versions do not grow by the updates")
        _require([one["position"] for one in commits] == counted, "positions do not grow by one")
    made_by_all = min(commits[-1]["version"] if commits else 0 for commits in run.orders())
    _require(made_by_all == run.run.plan.stop.updates, "the run has not made the updates asked for")


def check_outcomes(run: FinishedRun) -> None:
    """Check that each gradient is started once and has one outcome at most, or one for each of its blocks."""
    _require(max(run.started().values()) == 1, "a gradient was started twice")
    for block in range(len(run.orders())):
        outcomes = run.committed(block) + run.given_up("dropped", block) + run.given_up("aborted")
        _require(max(outcomes.values()) == 1, f"a gradient has two outcomes in block {block}")
        _require(outcomes.keys() <= run.started().keys(), "a gradient that was never started has an outcome")


def check_shards(run: FinishedRun) -> None:
    """Check that every shard applied the same gradients in the same order, each of them once."""
    orders = run.orders()
    for shard in range(run.run.plan.shards):
        commits = orders[shard if len(orders) > 1 else 0]
        decided = [list(zip(one["slots"], one["sequences"], strict=True)) for one in commits]
        gathered = [[(one.slot, one.sequence) for one in step] for step in run.witness.gathered[shard]]
        _require(gathered == decided, f"shard {shard} applied other gradients than were decided")


def check_nothing_is_left(run: FinishedRun) -> None:
    """Check that nothing waits, is pooled, held or open but what was under way at the end."""
    state = run.run.coordinator.state
    _require(run.still_waiting == [], f"still waiting at the end: {run.still_waiting}")
    _require((state.open_commits, state.pooled) == (0, 0), "commits or pooled gradients are left")
    _require(run.witness.saved == [state.version], "another model was saved than the newest")
    shown = [server.version for server in run.run.servers]
    _require(shown == [state.commit_log_of(server.shard).version for server in run.run.servers], "a server is behind")
    _require(not any(commit_log.held for commit_log in state.commit_logs), "gradients are held at the end")
    # Of a gradient that was under way at the end some blocks are open; nothing is kept of any before.
    under_way = {(member.slot, member.sequence) for member in state.roster.members()}
    _require(state.block_outcomes.open <= under_way, "blocks of gradients before the last are open")
    if state.batch_scheduler is not None:
        _require(state.batch_scheduler.out <= under_way, "batches of gradients before the last are out")


def check_staleness(run: FinishedRun) -> None:
    """Check that staleness is the version before the commit, or before that gradient of a sum, minus the label."""
    labels = {(one["slot"], one["sequence"]): one["label"] for one in run.of_kind("gradient")}
    for commit in run.of_kind("commit"):
        keys = zip(commit["slots"], commit["sequences"], strict=True)
        before, updates = commit["version"] - commit["versions"], commit["versions"]
        oldest = [before + min(ahead, updates - 1) - labels[key] for ahead, key in enumerate(keys)]
        for own, most in zip(commit["staleness"], oldest, strict=True):
            # The label in the log is the oldest of the blocks'; a block's own may be newer.
            _require(0 <= own <= most if "block" in commit else own == most >= 0, f"staleness {own}, label says {most}")


def check_labels(run: FinishedRun) -> None:
    """Check that a gradient is computed on the version that it was released on, or on a newer one."""
    starts = {(one["slot"], one["sequence"]): one["version"] for one in run.of_kind("start")}
    shards, rule = run.run.plan.shards, run.run.coordinator.state.traits.pull
    for one in run.of_kind("gradient"):
        partly = one.get("fresh_blocks", 0) >= rule.count(shards) and rule.fraction < 1
        known = one["label"] >= starts[one["slot"], one["sequence"]]
        _require(partly or known, f"gradient {one['sequence']} of slot {one['slot']} was computed on an older version")


def check_reasons(run: FinishedRun) -> None:
    """Check that drops and commits have a reason in words."""
    for one in run.of_kind("dropped"):
        _require(bool(one["reason"] and one["detail"]), f"a drop without a reason: {one}")
    for one in run.of_kind("commit"):
        _require(bool(one["reason"]), f"a commit without a reason: {one}")


def check_awaits_all(run: FinishedRun) -> None:
    """Check that a policy with `Traits.awaits_all` commits nothing while a worker is busy."""
    if not run.run.coordinator.state.traits.awaits_all:
        return
    busy: set[int] = set()
    for record in run.run.records:
        if record["kind"] == "start":
            busy.add(record["slot"])
        elif record["kind"] in ("gradient", "aborted", "lost", "left"):
            busy.discard(record["slot"])
        elif record["kind"] == "commit":
            _require(not busy, f"commit {record['position']} was made while slots {sorted(busy)} were busy")


CONTRACT: Final[Mapping[str, Callable[[FinishedRun], None]]] = {
    "order": check_order,
    "outcomes": check_outcomes,
    "shards": check_shards,
    "nothing is left": check_nothing_is_left,
    "staleness": check_staleness,
    "labels": check_labels,
    "awaits all": check_awaits_all,
    "reasons": check_reasons,
}
"""Each promise by its name, with what raises `AssertionError` where a finished run has broken it."""


def check_contract(run: FinishedRun) -> None:
    """Check all of `CONTRACT`; what is broken is named first."""
    for name, promise in CONTRACT.items():
        try:
            promise(run)
        except AssertionError as broken:
            raise AssertionError(f"{name}: {broken}") from broken


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)
