"""Where parameters and gradients lie, and how they move: shared memory, comms, and the store.

Four words cover it.  A server is a *publisher* of its shard (`content`), which *readers* copy out or are sent
(`fetching`).  A worker is a *source of gradients* (`gradient_buffers`, `pushing`).  What replicas lack comes to them by
a *feed*: from their server by a carrier (`carriers`, `transfers`, `cold_storage`) or from the workers
(`replica_feed`, `feed_reader`).  What lies where is decided by the run's transport (`transports`) alone.
"""
