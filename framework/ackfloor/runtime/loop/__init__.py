"""The owner thread: its turn of polling, scheduling, committing and reporting; drain and stop.

Imports all of the runtime. Start with `loop`; `worker_assembly` puts one worker together.
"""
