"""What the engine owns: assignments, handlers, commits under way, faults, and their snapshot.

An assignment is one partition for as long as this worker has it. Imports all of core but `outbox`,
`scheduling` and `engine`. Start with `assignment`.
"""
