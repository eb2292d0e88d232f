"""The simulation: workers and a broker in one process, everything decided by one seed.

docs/simulation.md says what is real in it, what stands in for Kafka, and what it can't show.
"""
