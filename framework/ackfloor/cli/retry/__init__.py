"""`ackfloor retry`: what waits in retry topics, promoted or buried before its time."""
