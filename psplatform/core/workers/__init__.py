"""The control half of a gradient worker."""
