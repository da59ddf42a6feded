"""What the roles of an in-memory run are made of: their nodes and the ports of those."""
