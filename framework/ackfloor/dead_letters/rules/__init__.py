"""Rules of redrive and disposal: filters, edits, headers, notes; pure, like `ackfloor.core`.

Imports `ackfloor.core`. Start with `redrive_rules` and `dispositions`.
"""
