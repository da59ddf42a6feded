"""The Dask driver: the roles of `psplatform.core` as Dask actors, with real tensors between them.

====================  ========================================================================
``program``           what every process of the run gets to know, and ``trial``, a first gradient with it;
                      ``references``, what it names that a process must be able to import
``cluster``           which Dask workers there are
``seating``           keeps roles where `psplatform.core.placement` would put them when some are lost, with
                      ``moves`` (what should go elsewhere) and ``warming`` (imports ahead, off the event loop)
``coordinator_host``  the coordinator around its node, or its standby (``standing_by``) until it takes over;
                      what it sends by ``coordinator_outbox``, with ``fleet`` (actors on the cluster),
                      ``staff`` (gradient workers and evaluator), ``copy_staff`` (copies of shards),
                      ``standbys`` (each a ``deputy``), ``absent`` (where nobody is hired), ``sealing``
                      (checkpoints), ``claims`` (who may take over, and whether the scheduler is heard),
                      ``journal`` (the event log), ``keeping`` (the store, which may be removed under a
                      run) and ``news`` of that
``copy_host``         one copy of a shard, server or replica, around its node; ``shard_state``: arithmetic in
                      a thread of its own, its ``content`` in a segment; ``transfers`` to replicas through
                      an ``outbox``, and ``archiving`` of its part of checkpoints
``worker_host``       one gradient worker around its node, with ``gradients``: ``computing`` (its thread),
                      ``exposure`` (where they lie) and ``pushing`` (to servers that cannot see that)
``evaluator_host``    the evaluator around its node, with ``evaluation`` (measuring and saving, in threads)
``watching``          noticing at once that a process has ended, one of this host (``processes``) before
                      its sockets are closed; ``retirement``, before it does
``hurting``           a process that is killed or stopped on purpose
``publication``       where programs find the coordinator; ``scheduler_side``, what that is on the
                      scheduler, which forgets it with the run
``background``        tasks that nobody awaits; ``timers`` of nodes
``fetching``          a pull's content into local vectors
``calls``, ``lines``  calls with a deadline, and ordered one-way delivery on top of them
``segments``          shared memory that outlives nobody
``hosting``           actors by the name of their class, so that the scheduler stays light
====================  ========================================================================

Calls go from process to process, never through the scheduler, and each has a deadline.  Actor handles are never passed
to anybody: a peer is a plain (Dask worker address, actor key).
"""
