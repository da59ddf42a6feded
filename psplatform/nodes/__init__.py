"""The nodes of a run: each executes the effects of one role's state machine, and does so wherever the run lives.

===============  ===================================================================
``ports``        what nodes need of the world around them
``coordinator``  the coordinator: who is let in, made and let go, and what is committed
``standby``      what follows the coordinator and takes over from it
``shard``        the server or a replica of a shard
``worker``       a gradient worker
``evaluator``    measures and saves versions
``in_turn``      in which order a node handles what it is told
===============  ===================================================================

A node knows no world.  What it needs of one are ports, of which each world has its own form: `psplatform.runtime` with
an event loop, threads and shared memory, `psplatform.memory` with a clock that jumps.  So what the simulator and the
search for faults try is what runs on a cluster.
"""
