"""What must hold: a reference model, the roles judged by what they say, and what a log must show."""
