"""Which record is delivered next: redeliveries, retries in place, breaker trials, crash suspects.

A record hops to the next retry topic here, when it came due too early. Imports all of core but
`engine`. Start with `scheduler`.
"""
