"""The coordinator and its standbys as Dask actors, and what is in their processes."""
