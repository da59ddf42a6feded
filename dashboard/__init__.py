"""The live view of runs."""
