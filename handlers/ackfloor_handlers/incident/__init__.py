"""An incident to practise on: a shop of five handlers of which three fail.

The walk-through is docs/guide/incident.md. `python -m ackfloor_handlers.incident begin` sets it up.
"""
