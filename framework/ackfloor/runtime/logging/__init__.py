"""What a worker logs, as text or JSON: deliveries and faults, at most a few lines a second.

Imports `calls`. Start with `logs`.
"""
