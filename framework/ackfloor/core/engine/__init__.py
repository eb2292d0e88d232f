"""The engine: what happens to every record between being read and being committed.

Imports all of core; only the runtime and tests import it. Start with `engine`; `intake` has
assign, revoke and skip on restart, `completions` has answers and deadlines.
"""
