"""`ackfloor lanes`: keys and partitions that wait for a record that failed, and what moves them."""
