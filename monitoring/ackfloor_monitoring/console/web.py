"""Web: the console as an ASGI app: the path of each endpoint, and the headers of each answer."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ackfloor_monitoring.console.access.gate import Gate, Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.acting_endpoints import ActingEndpoints
from ackfloor_monitoring.console.acts.acting import Acting
from ackfloor_monitoring.console.acts.cancels import Cancels
from ackfloor_monitoring.console.acts.change_desk import ChangeDesk
from ackfloor_monitoring.console.acts.corrections.edits import Edits
from ackfloor_monitoring.console.acts.corrections.reveals import Reveals
from ackfloor_monitoring.console.acts.job_desk import JobThreads
from ackfloor_monitoring.console.acts.redrives import Redrives
from ackfloor_monitoring.console.acts.resumes import Resumes
from ackfloor_monitoring.console.forms import PAYLOAD_FORM_BYTES
from ackfloor_monitoring.console.looking_endpoints import LookingEndpoints
from ackfloor_monitoring.console.pages.menu import ASKED_PAGES, PAGES
from ackfloor_monitoring.console.pages.report_page import REPORT
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.searches import Searches
from ackfloor_monitoring.console.revealing import RevealEndpoint

#: Of every answer. Scripts and styles are our own files, and nothing else is loaded; of our pages
#: one alone lets itself be framed, the report.
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Under no-referrer a browser would not say which page a form comes from.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def web_app(
    clusters: Sequence[Cluster], gate: Gate, ending: asyncio.Event, events_s: float = math.inf
) -> Starlette:
    """The console of these clusters.

    Args:
        ending: set when the console is about to end: nobody waits for news any longer.
        events_s: seconds after which a page asks for its events again, for a server that waits for
            all answers before it says that it ends.
    """
    searches = Searches()
    named = {each.name: each for each in clusters}
    endpoints = LookingEndpoints(named, gate, ending, events_s, searches)
    routes = looking_routes(endpoints)
    threads = {each.name: JobThreads() for each in clusters}
    routes += desk_routes(clusters, threads, gate, searches)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        kept = [asyncio.create_task(each.keep_history()) for each in clusters]
        kept += [asyncio.create_task(each.keep_plots()) for each in clusters]
        try:
            yield
        finally:
            for task in kept:
                task.cancel()
            for cluster in clusters:
                cluster.close()
            for each in threads.values():
                await asyncio.to_thread(each.close)

    return Starlette(
        routes=routes,
        exception_handlers={Refused: endpoints.refused, 404: endpoints.unknown},
        lifespan=lifespan,
    )


def looking_routes(endpoints: LookingEndpoints) -> list[Route]:
    """The way in and out, the static files, and the pages."""
    routes = [
        Route("/livez", lambda _request: PlainTextResponse("ok\n")),
        Route("/static/{name}", endpoints.static),
        Route("/login", endpoints.login_page),
        Route("/login", endpoints.log_in, methods=["POST"]),
        Route("/logout", endpoints.log_out, methods=["POST"]),
        Route("/", endpoints.first),
    ]
    for page in PAGES:
        path = f"/c/{{cluster}}/{page.path}{page.below}"
        routes += [
            Route(path, partial(endpoints.page, page)),
            Route(f"{path}/events", partial(endpoints.events, page)),
        ]
    routes += [
        Route(f"/c/{{cluster}}/{page.path}{page.below}", partial(endpoints.asked, page))
        for page in ASKED_PAGES
    ]
    routes.append(Route(f"/c/{{cluster}}/{REPORT.path}/file", endpoints.report))
    routes.append(Route("/c/{cluster}/exports", endpoints.export, methods=["POST"]))
    return routes


def desk_routes(
    clusters: Sequence[Cluster], threads: Mapping[str, JobThreads], gate: Gate, searches: Searches
) -> list[Route]:
    """Where each kind of order is judged and confirmed.

    Args:
        threads: cluster -> those that its jobs run in.
    """
    routes: list[Route] = []
    for name, desks in (
        ("orders", {each.name: Acting(each) for each in clusters}),
        ("redrives", {each.name: Redrives(each, threads[each.name]) for each in clusters}),
        ("resumes", {each.name: Resumes(each, threads[each.name]) for each in clusters}),
        ("cancels", {each.name: Cancels(each) for each in clusters}),
    ):
        routes += acting_routes(name, ActingEndpoints(desks, gate, searches))
    changing = {each.name: ChangeDesk(each) for each in clusters}
    routes += acting_routes(
        "changes", ActingEndpoints(changing, gate, searches, Right.change_settings)
    )
    reveals = {each.name: Reveals(each) for each in clusters}
    edits = {name: Edits(each, threads[name]) for name, each in reveals.items()}
    editing = ActingEndpoints(edits, gate, searches, Right.reveal, PAYLOAD_FORM_BYTES, private=True)
    routes += acting_routes("edits", editing)
    reveal = RevealEndpoint(reveals, gate).reveal
    return [*routes, Route("/c/{cluster}/reveals", reveal, methods=["POST"])]


def acting_routes(name: str, endpoints: ActingEndpoints[Any]) -> list[Route]:
    """Where forms that act are sent, and what each has an address for."""
    path = f"/c/{{cluster}}/{name}"
    return [
        Route(path, endpoints.ask, methods=["POST"]),
        Route(f"{path}/{{order}}", endpoints.show),
        Route(f"{path}/{{order}}", endpoints.confirm, methods=["POST"]),
    ]


def with_headers(app: ASGIApp, *, over_tls: bool) -> ASGIApp:
    """An app whose answers all have `HEADERS`.

    Args:
        over_tls: whether browsers are told to reach its host, and all that is there, so alone.
    """
    more = {"Strict-Transport-Security": "max-age=31536000"} if over_tls else {}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, **more}.items():
                    headers.setdefault(name, value)
            await send(message)

        await app(scope, receive, send_with_headers)

    return answer
