"""How parameters are shown, and get to who computes on them."""
