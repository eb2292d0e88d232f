"""The kit that users test with: an app on the in-memory broker, run until everything is at rest.

Imports `memory` and the runtime. Start with `harness`.
"""
