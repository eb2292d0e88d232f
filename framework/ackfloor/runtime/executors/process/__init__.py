"""Handlers in processes of their own, which can be killed.

In the worker: `process_executor` is what the loop knows, `process_pool` the thread that starts,
feeds and kills processes, `process_dispatch` says which records go to which, `handler_process` is
one of them as the worker sees it, `start_arguments` what it gets at its start. In the process:
`child` is its main module, `child_calls` its loop. Between them: `pipe` and `wire_format` carry
messages, and `shared_progress` is memory that shows which record a dead process was at.
"""
