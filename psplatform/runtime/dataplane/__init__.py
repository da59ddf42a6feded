"""Where parameters and gradients lie, and how they move: shared memory, comms, and the store.

Four words cover it.  A server is a *publisher* of its shard (`pulls.content`), which *readers* copy out or are sent
(`pulls.fetching`).  A worker is a *source of gradients* (`gradients.gradient_buffers`, `gradients.pushing`).  What
replicas lack comes to them by a *feed*: from their server by a carrier (`carriers`, `replicas.transfers`,
`replicas.cold_storage`) or from the workers (`replicas.replica_feed`, `replicas.feed_reader`).  What lies where is
decided by the run's transport (`transports`) alone.
"""
