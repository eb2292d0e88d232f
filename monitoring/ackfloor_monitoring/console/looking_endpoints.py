"""LookingEndpoints: the way in and out of the console, the static files, pages, and their events.

A request passes the gate, which says who sends it. A page is complete without scripts; its events
send its changing part again, as often as there is something newer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ackfloor_monitoring.console.access.gate import Gate, Identity, Refused
from ackfloor_monitoring.console.access.roles import MEANINGS, Person, Right
from ackfloor_monitoring.console.access.shares import Busy, SharedResponse, Shares, sent_file
from ackfloor_monitoring.console.acts.exports import exported
from ackfloor_monitoring.console.forms import (
    NEXT,
    form_of,
    headers_of,
    identified,
    login_for,
    own_page,
    peer_of,
    root_of,
)
from ackfloor_monitoring.console.pages.console_page import Asked, AskedPage, Known, Page
from ackfloor_monitoring.console.pages.menu import MENU
from ackfloor_monitoring.console.pages.overview_page import OVERVIEW
from ackfloor_monitoring.console.pages.report_page import POLICY as REPORT_POLICY
from ackfloor_monitoring.console.pages.report_page import report_file
from ackfloor_monitoring.console.reads.cluster_facts import Cluster
from ackfloor_monitoring.console.reads.refreshed import Answer, Refreshed
from ackfloor_monitoring.console.reads.searches import Searches
from ackfloor_monitoring.console.rendering import rendered, rendered_part
from ackfloor_monitoring.console.static_files import static_file

T = TypeVar("T")

#: Seconds after which a page's events say that they are still there.
ALIVE_S: Final = 15.0
#: So many pages may wait for events at once, of everybody and of one person.
MOST_STREAMS: Final = 500
EACH_STREAMS: Final = 100
#: Likewise files that are made, or read by a browser: each is in memory meanwhile.
MOST_FILES: Final = 6
EACH_FILES: Final = 2


class LookingEndpoints:
    """What answers requests of those who look."""

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        gate: Gate,
        ending: asyncio.Event,
        events_s: float,
        searches: Searches,
    ) -> None:
        self._clusters = clusters
        self._gate = gate
        self._ending = ending
        self._events_s = events_s
        self._streams = Shares(
            "pages that wait for news", "load this one again by hand, or close others"
        )
        self._files = Shares("files", "try again when others are read to their end")
        self._searches = searches

    # The way in and out.

    async def first(self, request: Request) -> Response:
        """To the first cluster's overview."""
        await self._identify(request)
        first = f"/c/{next(iter(self._clusters))}/{OVERVIEW.path}"
        return RedirectResponse(root_of(request) + first, 303)

    async def login_page(self, request: Request) -> Response:
        """The form that asks for a token."""
        self._gate.refuse_other_hosts(headers_of(request))
        return self._login(request, 200, "", request.query_params.get(NEXT, ""))

    async def log_in(self, request: Request) -> Response:
        """Begin a session, and go to the page that was asked for."""
        form, root = await form_of(request), root_of(request)
        try:
            secret = self._gate.log_in(headers_of(request), peer_of(request), form.get("token"))
        except Refused as exc:
            if exc.status == 421:
                raise
            return self._login(request, exc.status, str(exc), form.get(NEXT))
        answer = RedirectResponse(root + (own_page(form.get(NEXT)) or "/"), 303)
        answer.set_cookie(
            self._gate.cookie(root),
            secret,
            path=root or "/",
            httponly=True,
            samesite="strict",
            secure=self._gate.secure,
        )
        return answer

    def _login(self, request: Request, status: int, why: str, then: str) -> Response:
        return rendered(
            request,
            "login.html",
            status,
            why=why,
            meanings=MEANINGS,
            asks=self._gate.asks,
            then=own_page(then),
            # A link of another site comes without the cookie; one of our own page brings it.
            by_link=request.headers.get("sec-fetch-site") == "cross-site",
        )

    async def log_out(self, request: Request) -> Response:
        """End the session."""
        await self._identify(request)
        root = root_of(request)
        self._gate.log_out(headers_of(request), root)
        answer = RedirectResponse(f"{root}/login", 303)
        cookie, secure = self._gate.cookie(root), self._gate.secure
        answer.delete_cookie(cookie, root or "/", secure=secure, httponly=True, samesite="strict")
        return answer

    async def static(self, request: Request) -> Response:
        """A script, a style or a picture."""
        self._gate.refuse_other_hosts(headers_of(request))
        return static_file(request.path_params["name"])

    # Pages.

    async def page(self, page: Page, request: Request) -> Response:
        """A whole page."""
        identity = await self._identify(request)
        cluster = self._cluster(request)
        known = await self._known(page, cluster, asked_of(request, identity))
        return rendered(
            request,
            "page.html",
            200,
            **await self._context(page, cluster, known, identity),
            once=await self._once(page, cluster, known, identity),
            gate=self._gate,
        )

    async def asked(self, page: AskedPage, request: Request) -> Response:
        """A page that answers what its address asks."""
        identity = await self._identify(request)
        cluster = self._cluster(request)
        asked = asked_of(request, identity)
        facts = await self._searches.answer(partial(page.facts, cluster, asked), identity.person)
        return rendered(
            request,
            page.template,
            200,
            **self._menu(page, cluster),
            **facts,
            identity=identity,
            acts=identity.person.may(Right.act),
            gate=self._gate,
        )

    async def report(self, request: Request) -> Response:
        """The report of Spark, for the frame of its page."""
        identity = await self._identify(request)
        cluster, asked = self._cluster(request), asked_of(request, identity)
        if request.headers.get("sec-fetch-dest", "iframe") != "iframe":
            raise Refused(403, "the report is shown within its page alone")
        with self._file(identity.person) as file:
            look = partial(report_file, cluster, asked)
            text = await self._searches.answer(look, identity.person)
            policy = REPORT_POLICY
            return sent_file(text, file.pop_all(), "text/html", Content_Security_Policy=policy)

    async def export(self, request: Request) -> Response:
        """Dead letters as a file."""
        form = await form_of(request)
        identity = await identified(self._gate, request, form.get("csrf"))
        with self._file(identity.person) as file:
            look = partial(exported, self._cluster(request), form, identity.person)
            found = await self._searches.answer(look, identity.person)
            named = f'attachment; filename="{found.name}"'
            share = file.pop_all()
            return sent_file(found.body, share, "application/jsonl", Content_Disposition=named)

    def _file(self, person: Person) -> ExitStack:
        """The share of a file; raises Refused where there are too many."""
        share = ExitStack()
        share.enter_context(self._files.taken(person, MOST_FILES, EACH_FILES))
        return share

    async def events(self, page: Page, request: Request) -> Response:
        """A page's changing part, each time that there is something newer."""
        identity = await self._identify(request)
        cluster = self._cluster(request)
        share = ExitStack()
        share.enter_context(self._streams.taken(identity.person, MOST_STREAMS, EACH_STREAMS))
        news = self._stream(page, cluster, identity, request)
        return SharedResponse(news, share, media_type="text/event-stream")

    async def _stream(
        self, page: Page, cluster: Cluster, identity: Identity, request: Request
    ) -> AsyncIterator[str]:
        asked, sent = asked_of(request, identity), ""
        until_s = time.monotonic() + self._events_s
        try:
            while (goes_on := identity.goes_on()) and (left_s := until_s - time.monotonic()) > 0:
                known = await self._known(page, cluster, asked)
                text = await self._changed(page, cluster, known, identity, request) or sent
                # It may have taken seconds, and who was let in before may not be any more.
                if not (goes_on := identity.goes_on()):
                    break
                if text != sent:
                    sent = text
                    yield event("facts", text)
                else:
                    yield ": still there\n\n"
                await self._newer(cluster, known, min(ALIVE_S, left_s))
                if self._ending.is_set():
                    return
            again = goes_on or identity.asks_again
            yield event("again", "") if again else event("over", "log in again")
        except Refused as exc:
            yield event("over", str(exc))

    async def _changed(
        self, page: Page, cluster: Cluster, known: Known, identity: Identity, request: Request
    ) -> str:
        """The changing part as it is now; empty where there is no room to find that out."""
        try:
            context = await self._context(page, cluster, known, identity)
        except Busy:
            return ""
        return rendered_part(request, page, context)

    async def _newer(self, cluster: Cluster, known: Known, patience_s: float) -> None:
        """Wait until something newer than that is known, so long, or until the console ends."""
        asked: list[tuple[Refreshed[Any], Answer[Any] | None]] = [
            (cluster.runs, known.runs),
            (cluster.kafka, known.kafka),
            (cluster.actions, known.actions),
        ]
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(question.after(answer.number, patience_s))
            for question, answer in asked
            if answer is not None
        ]
        tasks.append(asyncio.create_task(self._ending.wait()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _known(self, page: Page, cluster: Cluster, asked: Asked) -> Known:
        async def look(question: Refreshed[T], wanted: bool) -> Answer[T] | None:
            return await question.look() if wanted else None

        runs, kafka, actions = await asyncio.gather(
            cluster.runs.look(),
            look(cluster.kafka, page.asks_kafka),
            look(cluster.actions, page.asks_actions),
        )
        return Known(asked, runs, kafka, actions)

    async def _context(
        self, page: Page, cluster: Cluster, known: Known, identity: Identity
    ) -> dict[str, Any]:
        look = partial(page.facts, cluster, known)
        # What reads the index costs as much as a search, and is bounded as one.
        facts = await self._searches.answer(look, identity.person) if page.asks_index else look()
        return {
            "identity": identity,
            "acts": identity.person.may(Right.act),
            "sees_keys": identity.person.may(Right.see_payloads),
            **self._menu(page, cluster),
            "heading": page.heading(known.asked),
            "news": page.news(known.asked),
            "late": known.late(),
            "silent": known.silent(),
            **facts,
        }

    async def _once(
        self, page: Page, cluster: Cluster, known: Known, identity: Identity
    ) -> Mapping[str, Any]:
        """What a page shows once; where that is not known in time, why, beside all the rest."""
        if page.once is None:
            return {}
        try:
            return await self._searches.answer(partial(page.once, cluster, known), identity.person)
        except Busy as exc:
            return {"why": str(exc)}

    def _menu(self, page: Page | AskedPage, cluster: Cluster) -> dict[str, Any]:
        return {
            "page": page,
            "pages": MENU,
            "cluster": cluster.name,
            "clusters": list(self._clusters),
        }

    def _cluster(self, request: Request) -> Cluster:
        name = request.path_params["cluster"]
        if name not in self._clusters:
            raise Refused(404, f"no cluster {name!r}: {', '.join(self._clusters)}")
        return self._clusters[name]

    async def _identify(self, request: Request) -> Identity:
        sent = (await form_of(request)).get("csrf") if request.method == "POST" else ""
        return await identified(self._gate, request, sent)

    # What did not come in.

    async def refused(self, request: Request, exc: Exception) -> Response:
        """Why; where a login helps, the browser is led to it."""
        status = exc.status if isinstance(exc, Refused) else 500
        if status == 401 and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse(root_of(request) + login_for(request), 303)
        return rendered(request, "refused.html", status, why=str(exc))

    async def unknown(self, request: Request, exc: Exception) -> Response:
        """There is no such page."""
        del exc
        return rendered(request, "refused.html", 404, why=f"no page {request.url.path}")


def asked_of(request: Request, identity: Identity) -> Asked:
    """What a request asks, and who."""
    return Asked(identity.person, dict(request.query_params), request.path_params)


def event(name: str, text: str) -> str:
    """A server-sent event; its text may have any lines."""
    lines = "".join(f"data: {line}\n" for line in text.replace("\r", "").split("\n"))
    return f"event: {name}\n{lines}\n"
