"""`ackfloor broker`, `demo`, `doctor` and `topics`: what a run needs, and a trial of it all."""
