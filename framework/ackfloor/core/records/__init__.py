"""A record, one delivery of it, how that ends, and by which policy it comes again.

Imports `values`. Start with `record`, then `tracked_delivery`, `outcomes` and `retry_policy`;
`envelope` is what the headers of a parked record say.
"""
