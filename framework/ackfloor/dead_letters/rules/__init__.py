"""What a dead letter becomes when it is redriven or disposed of; pure, like `ackfloor.core`.

Imports `ackfloor.core`. Start with `redrive_rules` and `dispositions`.
"""
