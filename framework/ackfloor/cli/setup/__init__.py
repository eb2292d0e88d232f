"""`ackfloor broker`, `demo`, `doctor` and `topics`: prepare, check and try out a run."""
