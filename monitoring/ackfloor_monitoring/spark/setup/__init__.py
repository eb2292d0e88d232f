"""Spark's setup: session, jars, Kafka options, and checks of them."""
