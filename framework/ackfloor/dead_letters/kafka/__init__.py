"""Dead letters and other parked records on the broker: read by their place, redriven, disposed of.

Imports `rules`, `ackfloor.core` and `ackfloor.kafka`. Start with `redrive_job`.
"""
