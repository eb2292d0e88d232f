"""Which record is delivered next: redeliveries, retries in place, breaker trials, crash suspects.

A record that still has to wait when its tier's delay is over hops to the next tier here. Imports
all of core but `engine`. Start with `scheduler`.
"""
