"""Topics on the cluster: creation, description, topic ids, log ranges, permissions.

Imports `client`. Start with `cluster_topics`.
"""
