"""Which offsets of a partition are settled: the tracker, its floor, and the gap set of a commit.

By the gap set a restart skips what is settled above the committed offset. Imports `values` and
`records`. Start with `tracker`, then `gap_set`.
"""
