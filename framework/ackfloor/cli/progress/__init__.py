"""`ackfloor acks` and `ackfloor lag`: how far groups are, as Kafka sees it and as ackfloor does."""
