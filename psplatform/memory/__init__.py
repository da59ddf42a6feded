"""The in-memory driver: a whole run in one thread, on a clock that jumps.

The same nodes as on a Dask cluster execute the same state machines; here are the ports that they need.  Two runs with
the same inputs give the same history, event for event.  It serves tests, examples and anybody who wants to watch the
protocol; modelled networks, faults and run-time distributions are the simulator's.

===============  ===================================================================
``driver``       a run: its nodes, and what tests and users do to it
``agenda``       events in the order of their time
``processes``    what was killed or stopped, and timers in them
``world``        how long everything takes, and messages on their way
``leading``      coordinators and ``standbys``: ports of their nodes
``workers``      gradient workers, with their ``gradients``
``shard_state``  what servers and replicas hold
``evaluation``   measures and saves versions
``arithmetic``   what servers and workers compute; here nothing at all
``training``     the same with real tensors
``machines``     processes on hosts, and which role goes where
``losses``       killing and stopping processes, and who notices; ``retirement``, ending them in good order
===============  ===================================================================
"""

from psplatform.memory.driver import MemoryRun

__all__ = ["MemoryRun"]
