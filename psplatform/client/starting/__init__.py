"""What is looked at and made ready before a run starts."""
