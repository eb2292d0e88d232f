"""The worker's consumer: assign and revoke, start positions, co-partitioned retry topics, commits.

Imports `client`, `topics` and `groups`. Start with `source`, then `membership`.
"""
