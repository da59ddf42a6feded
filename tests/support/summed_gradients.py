"""Dask workers whose coordinators have gradients summed whenever two wait, whatever the network is like.

A planner has them summed where that is faster, which depends on the machine that the tests run on.
"""

from __future__ import annotations

import sys
from typing import Any

import cloudpickle
from distributed import Client

# What is run in processes that cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def sum_all_gradients(client: Client) -> None:
    """Let all processes of a cluster plan so from now on; and have every pull answered by the servers."""
    client.run(_sum_all_gradients)


def _sum_all_gradients() -> None:
    import math

    from psplatform.core.transfers import Grant, PullGrant, PullPlan, TransferPlan
    from psplatform.network.planner import FabricPlanner

    def plan(planner: FabricPlanner, offers: Any, now: float, able: Any = None) -> TransferPlan:
        alone = [one.key for one in offers if one.alone]
        together = [one.key for one in offers if not one.alone]
        aggregator = next(iter(able or ()), None)
        if aggregator is None or len(together) == 1:
            alone, together = alone + together, []
        granted = [Grant((key,), (now,), None, now) for key in alone]
        if together:
            granted.append(Grant(tuple(together), (now,) * len(together), aggregator, now))
        return TransferPlan(tuple(granted), (), ())

    def plan_pulls(planner: FabricPlanner, waiting: Any, now: float, able: Any = None) -> PullPlan:
        return PullPlan(tuple(PullGrant(one.key, None, now) for one in waiting), now + planner.tick_s)

    replaced: dict[str, Any] = {
        "plan": plan,
        "plan_pulls": plan_pulls,
        "grant_at_once": lambda planner, offer, now, waiting=(): math.inf,
    }
    for name, value in replaced.items():
        setattr(FabricPlanner, name, value)
