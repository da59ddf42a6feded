"""Shards, their copies, and checkpoints of them."""
