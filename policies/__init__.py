"""Synchronisation policies: who may start, what is committed when, and at what rate."""
