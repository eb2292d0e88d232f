"""The call of a handler: decode the record, call the function, turn what comes out into an outcome.

Traces are here, too. Imports nothing else of the runtime. Start with `invoke`.
"""
