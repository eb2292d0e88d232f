"""What Spark needs before it runs: session, jars, Kafka options, and checks of all that."""
