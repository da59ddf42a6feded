"""What a fault costs: who is hurt, and what is seen of that from beside."""
