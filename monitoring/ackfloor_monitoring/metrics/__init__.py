"""Metrics: their definitions, the tallies that events feed, and the pages that Prometheus reads.

Start with `metric_definitions` and `worker_metrics`.
"""
