"""Producers: parked records, transactions with their commits, and `App.publish`.

Transactions are committed, aborted and fenced here. Imports `client`. Start with `sink` and
`transactional_producer`.
"""
