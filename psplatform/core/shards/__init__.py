"""The control half of a shard: its server, its replicas, and what goes from one to the others."""
