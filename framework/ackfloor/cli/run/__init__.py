"""`ackfloor run`, its restart on changed code, and `ackfloor inflight`."""
