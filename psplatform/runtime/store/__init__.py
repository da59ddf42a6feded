"""What a run writes while it goes on: its log, its checkpoints, how it ended, and what actors saw."""
