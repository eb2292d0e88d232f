"""`ackfloor config` and `ackfloor policy`: settings and retry policies, shown and changed."""
