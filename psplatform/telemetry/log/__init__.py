"""The event log: written in segments, read from any position on, and checked."""
