"""The engine: each record from poll to commit.

Imports all of core; only the runtime and tests import it. Start with `engine`; `intake` has
assign, revoke and skip on restart, `completions` has answers and deadlines.
"""
