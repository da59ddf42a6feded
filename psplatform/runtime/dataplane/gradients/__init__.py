"""How gradients are made reachable for servers, and get to those that cannot see where they lie."""
