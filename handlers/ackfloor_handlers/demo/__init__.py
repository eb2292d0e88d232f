"""`ackfloor demo`: orders with known faults, a killed worker, and an account that must add up.

    seeded_orders -> demo_topics -> order_producer -> demo_processes -> run_watch, live_view
    -> account: collect -> reconcile -> account_report

`demo_run` runs the steps in order. `seeded_orders` and, in `account`, `facts`, `reconcile` and
`timing` are pure.
"""
