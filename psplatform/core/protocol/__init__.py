"""What roles tell each other, what drivers tell them, and what they ask of those."""
