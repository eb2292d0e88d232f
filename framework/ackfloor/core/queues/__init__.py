"""Where records wait: for a slot, until they are due, in their lane, or for a full batch.

Flow limits are here, too: they say when fetching a partition pauses and resumes. Imports
`values`, `records` and `messages`. Start with `handler_queue`, then `lanes` and `due_queue`.
"""
