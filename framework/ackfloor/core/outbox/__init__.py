"""Parked records on their way to Kafka: written, confirmed, or refused and tried again.

A record is settled only when its write is confirmed; a transaction is aborted when its partition is
revoked. Imports all of core but `scheduling` and `engine`. Start with `outbox`.
"""
