"""The protocol of psplatform as pure state machines: no clock, no randomness, no I/O.

Every role answers ``handle(event, now) -> list[Effect]``.  Drivers execute the effects, hand their results back as
events and say what time it is; the roles never learn whether they run on a Dask cluster, in memory or in a simulator.

=================  =======================================================================================
module             idea
=================  =======================================================================================
``messages``       what roles say to each other, each with its term, epoch or incarnation
``events``         what a driver reports to a role that no other role said
``effects``        what a role asks its driver to do
``wire``           messages to and from msgpack
``coordination``   the coordinator: admits, pools, commits, releases, ends; the one place where order is decided
``server``         a shard's control half: applies commits in order, answers pulls
``session``        a worker's side: pull, compute, push, announce
``pulling``        gathering one consistent version from all shards
``policy``         the four questions a synchronisation policy answers
``parameters``     parameters declared once, for validation, command line and forms
``roster``         slots, the members in them, and their clocks
``pool``           gradients waiting for the commit of their round
``epochs``         dealing the batches of an epoch so that each sample is applied once
``ledger``         commits that are decided and not yet visible on every shard
``plan``           what the coordinator must know of a job, stop conditions included
``rates``          learning-rate rules: constant, proportional, delay-adaptive
``leases``         who has been silent for too long
``reasons``        why a gradient was dropped, in words
=================  =======================================================================================
"""
