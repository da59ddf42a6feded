"""From a job to the coordinator's plan: how servers are protected, and when checkpoints are cut."""

from __future__ import annotations

import pytest

from psplatform.core.plan import Cuts, Protection
from psplatform.jobs.checkpoints import Checkpoints
from psplatform.jobs.planning import cuts_of, protection_of
from psplatform.jobs.replication import Bounded, Chain, NoReplication, Replication


@pytest.mark.parametrize(
    ("replication", "protection"),
    [
        (NoReplication(), None),
        (Chain(), Protection(1, 0.0, "updates", 0.0)),
        (Bounded(), Protection(1, 8, "updates", 8)),
        (Bounded(max_divergence=3, unit="updates", replicas=2), Protection(2, 3, "updates", 3)),
        (Bounded(max_divergence=1.0), Protection(1, 1.0, "norm", 0.5)),
        (Chain(on_replica_loss="pause"), Protection(1, 0.0, "updates", 0.0, pause=True)),
        (Chain(on_isolation="continue"), Protection(1, 0.0, "updates", 0.0, alone=True)),
        (Chain(target="store"), Protection(1, 0.0, "updates", 0.0, cold=True)),
    ],
    ids=str,
)
def test_what_a_job_asks_of_replicas_is_what_the_coordinator_sees_to(
    replication: Replication, protection: Protection | None
) -> None:
    """Four shards: each may use up half of a distance, and an update is one of each."""
    assert protection_of(replication, 4) == protection


@pytest.mark.parametrize(
    ("checkpoints", "cuts"),
    [
        (Checkpoints.never(), None),
        (Checkpoints(every_updates=200), Cuts(every_updates=200)),
        (Checkpoints(every_seconds=5.0), Cuts(every_seconds=5.0)),
        (Checkpoints(every_updates=200, every_seconds=5.0), Cuts(200, 5.0)),
    ],
    ids=str,
)
def test_checkpoints_are_cut_as_often_as_the_job_says(checkpoints: Checkpoints, cuts: Cuts | None) -> None:
    assert cuts_of(checkpoints) == cuts
