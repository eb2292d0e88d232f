"""The circuit breaker's rule, its settings, and its state for one handler.

Who acts on it is in `scheduling` (`breaker_control`, `withheld`). Imports `values`, `records` and
`queues`. Start with `rule`.
"""
