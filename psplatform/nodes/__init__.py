"""The nodes of a run: each executes the effects of one role's state machine, and does so wherever the run lives.

==============  ====================================================================
``ports``       what a node needs of the world around it: timers, gradients, evaluations
``worker``      a gradient worker
``evaluator``   measures and saves versions
==============  ====================================================================

A node knows no world.  What it needs of one are ports, of which each world has its own form: `psplatform.runtime` with
an event loop, threads and shared memory, `psplatform.memory` with a clock that jumps.  So what the simulator and the
search for faults try of these roles is what runs on a cluster.

Coordinators and shards have no node yet: each world executes their effects itself.
"""
