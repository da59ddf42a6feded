"""What the dashboard costs: how soon its pages are there, and what they take of a training."""
