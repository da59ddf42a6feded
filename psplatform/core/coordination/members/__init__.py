"""Who is in the run: slots and the members in them, who joins and leaves, and on which hosts they are."""
