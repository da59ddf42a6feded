"""Who is in charge and who takes over, who is silent, and where roles should be."""
