"""What authors of policies need to test them: runs in memory and in the simulator, disturbed by chance and by faults.

``check_policy``   runs of a policy in memory, disturbed by chance, each checked against what every policy must keep
``check_faults``   the same policy in the simulator, with replicas, standbys and checkpoints, while processes are killed
``JumpingLoop``    an event loop that never waits, for tests of code with timers

Each check is deterministic: what fails names its seed, and its run, made smaller as long as it still fails.  Optimisers
have `psplatform.check_optimizer`.
"""

from psplatform.testing.faults import check_faults
from psplatform.testing.jumping_loop import JumpingLoop
from psplatform.testing.policy_contract import CONTRACT, check_contract, check_policy
from psplatform.testing.random_runs import Disturbance, FinishedRun, RandomRun, check_runs, run_policy

__all__ = [
    "CONTRACT",
    "Disturbance",
    "FinishedRun",
    "JumpingLoop",
    "RandomRun",
    "check_contract",
    "check_faults",
    "check_policy",
    "check_runs",
    "run_policy",
]
