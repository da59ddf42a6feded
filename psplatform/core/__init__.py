"""The protocol of psplatform as pure state machines: no clock, no randomness, no I/O.

Every role answers ``handle(event, now) -> list[Effect]``.  Nodes (`psplatform.nodes`) execute the effects, hand their
results back as events and say what time it is; the roles never learn whether they run on a Dask cluster, in memory or
in a simulator.

================  ========================================================================================
``protocol``      what roles say to each other, what they are told and what they ask for: ``messages``, each
                  with its term, epoch or incarnation, ``events``, ``effects``; ``wire``, to and from msgpack
``coordination``  the coordinator: admits, pools, commits, releases, ends; the one place where order is
                  decided
``shards``        a shard's ``server`` applies commits in order and answers pulls; its ``replica`` follows by
                  what ``sending`` says goes over the ``links``
``workers``       a worker's ``session``: pull, compute, offer, push, announce; ``pulling`` one consistent version
``supervision``   the ``replicated_coordinator``, with its standbys and leases; a ``standby``, which
                  follows and takes over; ``placement`` of roles, and what the run would survive
``policy``        the four questions a synchronisation policy answers, about what its ``traits`` say it reads
``parameters``    parameters declared once, for validation, command line and forms
``transfers``     what a planner of transfers is asked, and what it answers
``plan``          what the coordinator must know of a job, stop conditions included
``rates``         learning-rate rules: constant, proportional, delay-adaptive
``quality``       what versions are compared by
``reasons``       why a gradient was dropped, in words
================  ========================================================================================
"""
