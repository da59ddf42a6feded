"""Checkpoints: written by many processes, sealed by one, read by anybody, kept for a while."""
