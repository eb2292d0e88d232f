"""`ackfloor demo`: orders with known faults, a killed worker, and an account that must add up.

    seed -> topics -> feed -> service -> watch, live -> collect -> reconcile -> report

`run` is the order of the steps. `seed`, `facts`, `reconcile` and `timing` are pure.
"""
