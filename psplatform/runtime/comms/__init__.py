"""Calls between actors, what goes on in their background, and where programs find a run."""
