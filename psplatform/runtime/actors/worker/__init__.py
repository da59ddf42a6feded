"""A gradient worker as a Dask actor, and what computes in it and carries what it computes."""
