"""Onlooker: who is told what an ingest does while it runs."""

from __future__ import annotations

from datetime import datetime

from ackfloor import AckfloorError


class IngestObserver:
    """Is told, and does nothing about it; subclasses do. What it raises ends the ingest."""

    def stored(self, at: datetime) -> None:
        """A batch was stored, its rows with this `ingested_at`. Called on a thread of Spark's."""

    def turn(self) -> None:
        """Called about once a second while a stream runs, on the thread of `Ingest.run`."""

    def failed(self, error: AckfloorError) -> None:
        """A stream has ended with this; it is begun anew, unless ingest ends with it as well."""
