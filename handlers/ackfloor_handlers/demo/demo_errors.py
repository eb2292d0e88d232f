"""Errors that keep the demo from a verdict; each is one line for people."""

from __future__ import annotations

from ackfloor import AckfloorError


class DemoRefused(AckfloorError):
    """The demo can't be run as asked; nothing was started or changed."""

    exit_code = 2


class DemoFailed(AckfloorError):
    """The demo was under way and can't go on."""
