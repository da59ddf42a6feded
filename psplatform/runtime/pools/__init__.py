"""Making, watching and replacing the actors of a run, and where they go."""
