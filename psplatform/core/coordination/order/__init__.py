"""How gradients become versions: admission, pools, commits in their order, and who is released for the next one."""
