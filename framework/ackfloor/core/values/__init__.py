"""Plain values and text: durations, sizes, rates, how they are parsed and printed.

Imports nothing of ackfloor. Start with `durations`.
"""
