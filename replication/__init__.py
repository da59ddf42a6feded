"""Replicas, failover and checkpoints."""
