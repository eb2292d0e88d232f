"""Snapshots of a worker and who receives them: metrics, `/state`, `/readyz`, and the map of acks.

Imports nothing else of the runtime. Start with `snapshot_builder`.
"""
