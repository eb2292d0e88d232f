"""What users declare: handlers and their rules, what parameters take, how values are decoded.

Connects to nothing. Imports `ackfloor.core` and `ackfloor.errors`. Start with `registration`.
"""
