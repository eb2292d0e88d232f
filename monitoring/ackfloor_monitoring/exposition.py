"""Exposition: the page `/metrics` of a registry, in the format that is asked for."""

from __future__ import annotations

import gzip
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, gzip_accepted

from ackfloor_monitoring.server import Page, Request, Response


def metrics_page(registry: CollectorRegistry) -> Page:
    """Prometheus text or OpenMetrics, packed where the client takes that; `name[]` chooses."""

    def page(request: Request) -> Response:
        try:
            encode, content_type = choose_encoder(request.headers.get("accept", ""))
        except (ValueError, TypeError, IndexError):
            # An Accept header whose version is none: the library compares it unchecked.
            encode, content_type = choose_encoder("")
        chosen: Any = registry
        if "name[]" in request.query:
            chosen = registry.restricted_registry(request.query["name[]"])
        body = encode(chosen)
        if gzip_accepted(request.headers.get("accept-encoding", "")):
            packed = gzip.compress(body, compresslevel=1)
            return Response(200, content_type, packed, (("Content-Encoding", "gzip"),))
        return Response(200, content_type, body)

    return page
