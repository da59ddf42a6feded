"""The actors of a run: each makes the node of its role, and hands it what comes through Dask."""
