"""Samples and batches, whatever holds them."""
