"""The Dask driver: the roles of `psplatform.core` as Dask actors, with real tensors between them.

====================  ============================================================================
``launch``, ``run``   what a program uses: start a job, wait for it, attach to it
``preflight``         what must hold before anything is started
``placement``         which role goes into which process
``program``           what every process needs to know of a job, and what it makes of it
``coordinator_host``  executes the coordinator's effects; with ``fleet`` (actors on the cluster),
                      ``journal`` (the event log)
``server_host``       one shard: arithmetic in a thread of its own, content in a segment
``worker_host``       one gradient worker, with ``computing`` (its thread)
``evaluator_host``    measures and saves versions
``fetching``          a pull's content into local vectors
``calls``, ``lines``  calls with a deadline, and ordered one-way delivery on top of them
``segments``          shared memory that outlives nobody
``exposure``          how a gradient is made reachable for the servers
====================  ============================================================================

Calls go from process to process, never through the scheduler, and each has a deadline.  Actor handles are never passed
to anybody: a peer is a plain (Dask worker address, actor key).
"""
