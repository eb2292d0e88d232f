"""The runtime: the owner thread's loop, executors, worker processes and their supervisor."""
