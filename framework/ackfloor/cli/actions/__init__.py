"""`ackfloor actions`: what operators have done to runs, retry topics and dead letters."""
