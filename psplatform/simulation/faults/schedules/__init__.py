"""What happens to a run, as data: drawn from a seed, written down, made smaller."""
