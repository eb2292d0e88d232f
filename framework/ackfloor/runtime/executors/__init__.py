"""Who runs handlers: on the event loop, on threads, or in processes of their own (`process`).

An executor has a window of units that were given and have not started, and slots that take from it.
Imports `calls`, `supervision.in_flight_memory` and `supervision.crashes`. Start with `window`, then
`async_executor`.
"""
