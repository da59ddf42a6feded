"""Runs as programs find them: the way to their coordinators, what their stores tell, and what is left of them."""
