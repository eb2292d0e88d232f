"""`ackfloor dlq`: list, show, export, replay, discard and archive dead letters.

Imports `rules`, `kafka` and `ackfloor.cli.shared`. Start with `dlq`.
"""
