"""`ackfloor status`: what is wrong with runs and groups, the worst first, and what to type next."""
