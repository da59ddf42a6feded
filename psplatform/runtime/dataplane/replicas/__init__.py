"""How a server's replicas get what they lack: in segments, from the workers, or into the store."""
