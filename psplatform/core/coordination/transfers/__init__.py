"""What is sent when and by which way, where transfers are planned: gradients, sums on the way, and parameters."""
