"""Topics on the cluster: created, described, told apart by id; where their logs begin and end.

Imports `client`. Start with `cluster_topics`.
"""
