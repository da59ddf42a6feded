"""What several measurements share: rounds, rates of a run, and what Linux counts of a process."""
