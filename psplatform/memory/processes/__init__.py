"""The processes of an in-memory run: which there are, who lives in them, and how they end."""
