"""What a server that was replaced has shown is held against its successor's state; one that never served has not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from psplatform.errors import InvariantViolation
from psplatform.simulation.faults.checks.distance import Distances
from psplatform.simulation.faults.checks.histories import Base
from psplatform.simulation.faults.execution import Execution
from psplatform.simulation.faults.schedules.drawing import draw
from psplatform.simulation.faults.schedules.trial import Copying
from psplatform.simulation.threads import one_thread

BOUND = Copying(1, 1.0, "updates")


def test_a_copy_that_was_promoted_and_has_not_served_has_shown_nothing() -> None:
    with one_thread():
        ended = Execution(replace(draw(3), faults=(), copying=BOUND, hosts=0, late=()))
        ended.to_its_end()
    run, reference = ended.run, ended.reference
    (name,) = [one.server for one in run.coordinator.state.shards if one.shard == 0]
    history, distances = reference.histories[name], Distances(run, reference, BOUND)
    reference.bases[0, 7] = Base(history.front + 1.0, history.applied_visible - 2, 0)
    distances._check_successor(name, history, 5)
    reference.bases[0, 5] = Base(history.front, history.applied_visible, history.position)
    with pytest.raises(InvariantViolation, match="S5 is violated: what .* showed is .* and 2 updates from the state"):
        distances._check_successor(name, history, 5)
