"""What workers write: parked records, transactions with their commits, and `App.publish`.

A transaction is aborted or fenced here. Imports `client`. Start with `sink` and
`transactional_producer`.
"""
