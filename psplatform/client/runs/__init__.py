"""Runs that other programs have started, and what is left of them."""
