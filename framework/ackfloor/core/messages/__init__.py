"""What the engine gives the runtime: commands to carry out, and events to report.

Imports `values`, `records` and `parking`. Start with `commands` and `events`.
"""
