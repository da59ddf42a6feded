"""What policies estimate from what they see: paces, round times, statistics of gradients."""
