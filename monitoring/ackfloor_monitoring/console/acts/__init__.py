"""What somebody does in the console: a form becomes an order, judged first, done once confirmed.

An action is the same as on the command line (`ackfloor.operations`), but stricter in one thing: it
is noted before it is done, and where it can't be noted it is not done.
"""
