"""A real local Kafka: jars, Java, one node or three, and a guard that ends them with their owner.

Start with `cluster`.
"""
