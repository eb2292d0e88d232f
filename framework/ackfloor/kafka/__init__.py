"""The Kafka shell: the only place that imports the Kafka client."""
