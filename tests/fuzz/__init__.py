"""Fuzzing of everything that reads bytes from outside.

    python -m tests.fuzz --minutes 60
    python -m tests.fuzz --minutes 5 --only commits --seed 7

A target is a check that is given bytes, see `target.py`. Hypothesis makes the bytes: well-formed
ones that the target knows to make, changed ones from the corpus, and any. What reaches lines of
ackfloor that nothing reached before joins the corpus (`corpus/<target>.txt`, base64, a line for
each). What breaks a check is made as small as it gets and joins it too, so it is tried for ever:
the suite runs each corpus, and some new inputs for each target.
"""
