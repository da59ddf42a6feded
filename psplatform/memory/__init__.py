"""The in-memory driver: a whole run in one thread, on a clock that jumps.

The same nodes as on a Dask cluster execute the same state machines; here are the ports that they need.  Two runs with
the same inputs give the same history, event for event.  It serves tests, examples and anybody who wants to watch the
protocol; modelled networks, faults and run-time distributions are the simulator's.

===============  ===================================================================
``driver``       a run: its nodes, and what tests and users do to it
``engine``       events in the order of their time, what was killed or stopped, and messages on their way
``world``        how long everything takes
``arithmetic``   what servers and workers compute; here nothing at all
``training``     the same with real tensors
``roles``        coordinators, and standbys that become them: ports of their nodes (``leading``); ``standbys``, which
                 there are; servers and replicas (``shards``) and what they hold (``shard_state``); gradient
                 ``workers``, with their ``gradients``, ``sums`` and ``relaying``; ``evaluation``, which measures and
                 saves versions
``processes``    ``machines``, on hosts, and which role goes where, and ``placing``, who watches that;
                 ``worker_pool``, who computes and evaluates there, or ``joined_workers``, where workers come by
                 themselves; ``losses``, killing and stopping processes, and who notices; ``retirement``, ending them
                 in good order; ``inhabitants``, what both ask who lives where
===============  ===================================================================
"""

from psplatform.memory.driver import MemoryRun

__all__ = ["MemoryRun"]
