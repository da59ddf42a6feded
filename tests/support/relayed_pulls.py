"""Dask workers whose coordinators have every pull go through a relay, whatever the network is like.

A planner uses relays where that is faster, which depends on the machine that the tests run on.
"""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle
from distributed import Client

# What is run in processes that cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def relay_all_pulls(client: Client, expected_s: float) -> None:
    """Let all processes of a cluster plan so from now on, once; and sum no gradients on the way.

    Pulls are expected to take so long, and four times that, but a second at least, is a worker's patience.
    """
    client.run(_relay_all_pulls, expected_s)


def hand_ons(client: Client, addresses: list[str] | None = None) -> dict[str, int]:
    """Return how many answers each process has handed on since it was asked last, by address; of those that have."""
    found: dict[str, int] = client.run(_hand_ons, workers=addresses)
    return {address: count for address, count in found.items() if count}


def _relay_all_pulls(expected_s: float) -> None:
    from psplatform.core.transfers import PullGrant, PullPlan
    from psplatform.network.planner import FabricPlanner
    from psplatform.runtime.dataplane.pulls.relaying import ProcessRelaying

    plan, hand_on = FabricPlanner.plan, ProcessRelaying.hand_on

    def plan_pulls(planner: FabricPlanner, waiting: Any, now: float, able: Any = None) -> PullPlan:
        relay = next(iter(able or ()), None)
        return PullPlan(tuple(PullGrant(one.key, relay, now + expected_s) for one in waiting), now + planner.tick_s)

    def hand_on_and_count(relaying: Any, effect: Any) -> None:
        before = relaying.handed_on
        hand_on(relaying, effect)
        ProcessRelaying.hand_ons += relaying.handed_on - before  # type: ignore[attr-defined]

    replaced: list[tuple[Any, str, Any]] = [
        (FabricPlanner, "plan_pulls", plan_pulls),
        (FabricPlanner, "plan", lambda planner, offers, now, able=None: plan(planner, offers, now, ())),
        (ProcessRelaying, "hand_on", hand_on_and_count),
        (ProcessRelaying, "hand_ons", 0),
    ]
    for owner, name, value in replaced:
        setattr(owner, name, value)


def _hand_ons() -> int:
    from psplatform.runtime.dataplane.pulls.relaying import ProcessRelaying

    counted: int = ProcessRelaying.hand_ons  # type: ignore[attr-defined]
    ProcessRelaying.hand_ons = 0  # type: ignore[attr-defined]
    return counted
