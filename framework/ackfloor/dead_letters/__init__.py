"""Dead letters: reading, filtering, redriving, discarding and archiving them.

A worker that handles records does not need this package. `rules` is pure, `kafka` reads and writes,
`commands` is the command line. Start with `rules.redrive_rules`.
"""
