"""Measurements against published figures and rivals; each module measures one thing and returns plain rows.

What several of them share is in `psplatform.bench.measuring`.
"""
