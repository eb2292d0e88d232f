"""Handlers in processes of their own, which can be killed.

In the worker: `executor` is what the loop knows, `keeper` the thread that starts, feeds and kills
processes, `host` one of them as the keeper sees it, `plan` what one is told at its start. In the
process: `child` is its main module, `work` its loop. Between them: `pipe` and `words` carry what is
said, `face` is the shared memory by which a dead one tells what it was at.
"""
