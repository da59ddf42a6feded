"""Clusters: reached, looked at, or started on this machine for one run."""
