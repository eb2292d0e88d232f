"""What users declare: handlers and their options, parameters, and how values are decoded.

Connects to nothing. Imports `ackfloor.core` and `ackfloor.errors`. Start with `registration`.
"""
