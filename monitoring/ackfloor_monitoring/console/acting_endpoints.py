"""Endpoints that act: a form asks, a page shows what would be done, a second form confirms it.

Whoever may not act gets as far as none of them. An order has an address of its own, which shows
what it would do until it is confirmed, and what came of it from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ackfloor import AckfloorError, SettingError
from ackfloor_monitoring.console.access.gate import Gate, Identity, Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.acts.acting import Acting, Judged
from ackfloor_monitoring.console.acts.order_forms import read_order
from ackfloor_monitoring.console.forms import Fields, form_of, headers_of
from ackfloor_monitoring.console.rendering import rendered

T = TypeVar("T")


class ActingEndpoints:
    """What answers forms that act.

    Args:
        acting: cluster -> its orders.
    """

    def __init__(self, acting: Mapping[str, Acting], gate: Gate) -> None:
        self._acting = acting
        self._gate = gate

    async def ask(self, request: Request) -> Response:
        """Judge an order, and show what it would do; nothing is done."""
        identity, form = await self._identify(request)
        acting, address = self._of(request), request.client.host if request.client else ""
        try:
            order = read_order(form)
            judged = await _apart(acting, lambda: acting.judge(order, identity.person, address))
        except (AckfloorError, SettingError) as exc:
            raise Refused(400, str(exc)) from None
        return RedirectResponse(f"{request.url.path}/{judged.note.id}", 303)

    async def show(self, request: Request) -> Response:
        """What an order would do, or what came of it."""
        identity, _ = await self._identify(request)
        return self._shown(request, identity, self._judged(request))

    async def confirm(self, request: Request) -> Response:
        """Carry an order out, once."""
        identity, form = await self._identify(request)
        acting, judged = self._of(request), self._judged(request)
        reason = form.get("reason")
        if judged.needs_reason and not reason.strip():
            return self._shown(request, identity, judged, "say why: others will ask")
        try:
            await _apart(acting, lambda: acting.carry_out(judged, reason))
        except SettingError as exc:
            return self._shown(request, identity, judged, str(exc))
        return RedirectResponse(request.url.path, 303)

    def _shown(
        self, request: Request, identity: Identity, judged: Judged, why: str = ""
    ) -> Response:
        carried = self._of(request).carried(judged.note.id)
        return rendered(
            "order.html",
            400 if why else 200,
            cluster=request.path_params["cluster"],
            identity=identity,
            judged=judged,
            carried=carried,
            why=why,
        )

    async def _identify(self, request: Request) -> tuple[Identity, Fields]:
        """Who may act; raises Refused for everybody else."""
        form = await form_of(request) if request.method == "POST" else Fields()
        identity = self._gate.identify(request.method, headers_of(request), form.get("csrf"))
        if not identity.person.may(Right.act):
            raise Refused(403, f"a {identity.person.role} may look, not act: an operator may")
        return identity, form

    def _of(self, request: Request) -> Acting:
        name = request.path_params["cluster"]
        if name not in self._acting:
            raise Refused(404, f"no cluster {name!r}: {', '.join(self._acting)}")
        return self._acting[name]

    def _judged(self, request: Request) -> Judged:
        found = self._of(request).judged(request.path_params["order"])
        if found is None:
            raise Refused(404, "no such order any more: the page of actions shows what was done")
        return found


async def _apart(acting: Acting, does: Callable[[], T]) -> T:
    """Do what blocks on a thread of the console."""
    return await asyncio.get_running_loop().run_in_executor(acting.asking, does)
