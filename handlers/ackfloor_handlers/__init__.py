"""Reference handlers and the demo's app: small programs on ackfloor, meant to be copied."""

from __future__ import annotations
