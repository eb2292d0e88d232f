"""Worker processes from outside: started, watched, killed when they hang, replaced when they die.

What a worker marks as in flight outlives it, so that a crash has its suspects. Imports nothing else
of the runtime. Start with `supervisor`.
"""
