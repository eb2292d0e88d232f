"""Partitions: how far each is settled, and its ack map."""
