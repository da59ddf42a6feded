"""Tasks that are as wide, or take as long, as a measurement wants."""
