"""Everything that talks to Kafka: the only package that imports the Kafka client."""
