"""A consumer group from outside its members: its coordinator, its commits, how a member leaves.

Imports `client` and `topics`.
"""
