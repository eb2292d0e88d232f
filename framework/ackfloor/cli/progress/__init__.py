"""`ackfloor acks` and `ackfloor lag`: the progress of groups, as Kafka and as ackfloor see it."""
