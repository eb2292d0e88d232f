"""What `ackfloor doctor` and `ackfloor lag` ask of a cluster; nothing is changed.

Imports `client`, `topics`, `groups` and `ackfloor.dead_letters`. Start with `cluster_checks`.
"""
