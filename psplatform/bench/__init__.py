"""Measurements against published figures and rivals; each module measures one thing and returns plain rows."""
