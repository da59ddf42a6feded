"""The store of a run: where it is, whose it is, and every byte that is written and read there."""
