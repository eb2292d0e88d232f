"""Kafka in memory: a broker as a consumer group sees it, its clients, and a manual clock.

Start with `memory_broker`.
"""
