"""Plain values and text, with no idea of a record: durations, sizes, rates, and how they print.

Imports nothing of ackfloor. Start with `durations`.
"""
