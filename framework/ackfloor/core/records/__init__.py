"""A record, one delivery of it, its outcome, and the retry policy.

Imports `values`. Start with `record`, then `tracked_delivery`, `outcomes` and `retry_policy`;
`envelope` holds the headers of a parked record.
"""
