"""The in-memory driver: a whole run in one thread, on a clock that jumps.

It executes the effects of the same coordinator, servers and worker sessions that run on a Dask cluster.  Two runs with
the same inputs give the same history, event for event.  It serves tests, examples and anybody who wants to watch the
protocol; modelled networks, faults and run-time distributions are the simulator's.

===============  ===================================================================
``agenda``       events in the order of their time
``driver``       executes effects, delivers messages
``workers``      gradient workers around their nodes, with their ``gradients``
``shard_state``  what servers and replicas hold, for their nodes
``timers``       of nodes and coordinators
``world``        how long everything takes
``evaluation``   measures and saves versions, for the evaluator's node
``arithmetic``   what servers and workers compute; here nothing at all
``training``     the same with real tensors
===============  ===================================================================
"""

from psplatform.memory.driver import MemoryRun

__all__ = ["MemoryRun"]
