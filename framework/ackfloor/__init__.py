"""Acknowledgements, deadlines, retries and a dead-letter queue for Kafka consumers."""

from __future__ import annotations

__version__ = "0.1.0"
