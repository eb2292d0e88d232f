"""The errors ackfloor raises itself. Each message names the field, its value and the fix."""

from __future__ import annotations


class AckfloorError(Exception):
    """Base of every error that ackfloor raises on purpose; its text is fit to print as it is."""
