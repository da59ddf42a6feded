"""Where parameters and gradients lie, and how they move: shared memory, comms, and the store."""
