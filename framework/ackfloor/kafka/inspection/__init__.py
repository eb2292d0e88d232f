"""Read-only queries of a cluster for `ackfloor doctor`, `ackfloor lag` and `ackfloor acks`.

Imports `client`, `topics`, `groups` and `ackfloor.dead_letters`. Start with `cluster_checks`.
"""
