"""Clusters of real processes that are measured, on one machine or on several made of it."""
