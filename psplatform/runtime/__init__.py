"""The Dask driver: the nodes of `psplatform.nodes` in Dask actors, with real tensors between them.

==============  ==============================================================================
``actors``      one class for each role: makes its node, and hands it what comes through Dask
                (``coordinator.host``, which is a standby by ``standby_host`` until it takes over, and in
                charge a ``tenure`` with its ``driver``; ``copy_host``; ``worker.host`` with its
                ``exchange``; ``evaluator_host``); ``computing`` gradients and ``evaluation`` in threads;
                ``retirement``, before a process ends in good order
``pools``       the coordinator's side: ``worker_pool`` (gradient workers and evaluator), ``shard_pool``
                (servers and replicas, each a ``shard_actor``), ``standbys`` (each a
                ``standby_client``), made and found by ``fleet``; ``seating`` keeps roles where
                `psplatform.core.supervision.placement` would put them; ``cluster_watch`` sees which
                processes come and leave, ``watching`` the ends of single ones, ``deaths`` say of what;
                ``election``: who may take over, and whether the scheduler is heard
``dataplane``   where parameters and gradients lie and how they move: ``segments`` of shared memory
                that outlive nobody; ``gradients`` for those that cannot see where they lie; ``pulls`` of a
                shard's content into local vectors, or those of a GPU; ``replicas``: transfers through an
                outbox, from the workers, or into the store; ``shard_state``, all of that for a shard's
                node
``store``       what is written while a run goes on: the ``run_log``, ``sealing`` and ``archiving`` of
                checkpoints, the ``outcome``; ``keeping`` a store that may be removed under a run;
                ``recording`` what actors see, for an external check
``comms``       ``calls`` with a deadline, ``lines`` of ordered one-way delivery on top of them,
                ``publication`` of where a run's coordinator is, ``hosting`` of actors by the name of
                their class, so that the scheduler stays light
``program``     what every process of the run gets to know; ``references``, what it names that a process
                must be able to import; ``trial``, a first gradient with it
``cluster``     which Dask workers there are
==============  ==============================================================================

Calls go from process to process, never through the scheduler, and each has a deadline.  Actor handles are never passed
to anybody: a peer is a plain (Dask worker address, actor key).
"""
