"""Metrics, health and analytics of ackfloor workers; loaded by entry point, never by the core."""

from __future__ import annotations
