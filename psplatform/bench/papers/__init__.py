"""Settings of published measurements, simulated or timed beside the figures that their authors printed."""
