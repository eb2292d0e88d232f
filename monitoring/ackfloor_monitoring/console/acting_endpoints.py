"""Endpoints that act: a form asks, a page shows what would be done, a second form confirms it.

Whoever may not act gets as far as none of them. An order has an address of its own, which shows
what it would do until it is confirmed, and what came of it from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any, Generic, Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ackfloor import AckfloorError, SettingError
from ackfloor.operations import ActionNote
from ackfloor_monitoring.console.access.gate import Gate, Identity, Refused
from ackfloor_monitoring.console.access.roles import Person, Right
from ackfloor_monitoring.console.acts.first_noted import by_of
from ackfloor_monitoring.console.acts.kept_forms import KeptForms
from ackfloor_monitoring.console.forms import (
    FORM_BYTES,
    Fields,
    form_of,
    identified,
    origin_of,
    path_of,
)
from ackfloor_monitoring.console.pages.menu import MENU
from ackfloor_monitoring.console.reads.searches import Searches
from ackfloor_monitoring.console.rendering import rendered

T = TypeVar("T")
#: What a desk has judged: each has its own kind, which only its template looks into.
J = TypeVar("J", bound="JudgedForm")


class JudgedForm(Protocol):
    """What a form asks for, and what it would do."""

    @property
    def note(self) -> ActionNote:
        """As which it would be noted."""

    @property
    def needs_reason(self) -> bool:
        """Whether it is not done without a reason."""


class Desk(Protocol[J]):
    """Judges forms and carries them out: `Acting`, `ChangeDesk`, `Redrives` and others."""

    @property
    def asking(self) -> Executor:
        """Where its methods are to be called."""

    @property
    def kept(self) -> KeptForms[J, Any]:
        """What it has judged, by the ids of their notes, and what came of it."""

    @property
    def template(self) -> str:
        """Shows what is judged, and what came of it."""

    def searches(self, form: Fields) -> bool:
        """Whether judging a form reads as much as a search."""

    def judge(self, form: Fields, person: Person, address: str) -> J:
        """What a form would do; raises SettingError, AckfloorError, Refused."""

    def carry_out(self, judged: J, reason: str, address: str) -> None:
        """Do it, once, as confirmed from an address; raises SettingError."""

    def stop(self, judged: J, reason: str, address: str) -> None:
        """End what takes long, as soon as that can be; raises SettingError, AckfloorError."""


class ActingEndpoints(Generic[J]):
    """What answers forms that act.

    Args:
        desks: cluster -> who does it there.
        searches: those of the whole console.
        right: what somebody needs for it.
        form_bytes: that a form may have.
        private: whether an order shows what is hidden from others: only who asked for it sees it.
    """

    def __init__(
        self,
        desks: Mapping[str, Desk[J]],
        gate: Gate,
        searches: Searches,
        right: Right = Right.act,
        form_bytes: int = FORM_BYTES,
        *,
        private: bool = False,
    ) -> None:
        self._desks = desks
        self._gate = gate
        self._searches = searches
        self._right = right
        self._form_bytes = form_bytes
        self._private = private

    async def ask(self, request: Request) -> Response:
        """Judge an order, and show what it would do; nothing is done."""
        identity, form = await self._identify(request)
        desk, address = self._of(request), origin_of(self._gate, request)

        def judge() -> J:
            return desk.judge(form, identity.person, address)

        try:
            if desk.searches(form):
                judged = await self._searches.answer(judge, identity.person)
            else:
                judged = await _apart(desk, judge)
        except (AckfloorError, SettingError) as exc:
            raise Refused(400, str(exc)) from None
        return RedirectResponse(f"{path_of(request)}/{judged.note.id}", 303)

    async def show(self, request: Request) -> Response:
        """What an order would do, or what came of it."""
        identity, _ = await self._identify(request)
        return self._shown(request, identity, self._judged(request, identity))

    async def confirm(self, request: Request) -> Response:
        """Carry an order out, once; or stop it."""
        identity, form = await self._identify(request)
        desk, judged = self._of(request), self._judged(request, identity)
        _refuse_others(judged, identity)
        stops, reason = form.get("stop"), form.get("reason")
        address = origin_of(self._gate, request)
        if (stops or judged.needs_reason) and not reason.strip():
            return self._shown(request, identity, judged, "say why: others will ask")

        def does() -> None:
            if stops:
                desk.stop(judged, reason, address)
            else:
                desk.carry_out(judged, reason, address)

        try:
            await _apart(desk, does)
        except (AckfloorError, SettingError) as exc:
            return self._shown(request, identity, judged, str(exc))
        return RedirectResponse(path_of(request), 303)

    def _shown(self, request: Request, identity: Identity, judged: J, why: str = "") -> Response:
        desk = self._of(request)
        carried = desk.kept.carried(judged.note.id)
        return rendered(
            request,
            desk.template,
            400 if why else 200,
            cluster=request.path_params["cluster"],
            pages=MENU,
            identity=identity,
            judged=judged,
            carried=carried,
            # Its page asks why, and is not loaded again under who writes that.
            stopping=bool(request.query_params.get("stop")),
            why=why,
        )

    async def _identify(self, request: Request) -> tuple[Identity, Fields]:
        """Who may do it; raises Refused for everybody else."""
        sends = request.method == "POST"
        form = await form_of(request, self._form_bytes) if sends else Fields()
        identity = await identified(self._gate, request, form.get("csrf"))
        refuse_without(self._right, identity)
        return identity, form

    def _of(self, request: Request) -> Desk[J]:
        name = request.path_params["cluster"]
        if name not in self._desks:
            raise Refused(404, f"no cluster {name!r}: {', '.join(self._desks)}")
        return self._desks[name]

    def _judged(self, request: Request, identity: Identity) -> J:
        found = self._of(request).kept.judged(request.path_params["order"])
        if found is None:
            raise Refused(404, "no such order any more: the page of actions shows what was done")
        if self._private:
            _refuse_others(found, identity)
        return found


def refuse_without(right: Right, identity: Identity) -> None:
    """Raises Refused for who does not have a right that takes an operator, or an admin."""
    if not identity.person.may(Right.act):
        raise Refused(403, f"a {identity.person.role} may look, not act: an operator may")
    if not identity.person.may(right):
        raise Refused(403, "only an admin may do that")


def _refuse_others(judged: JudgedForm, identity: Identity) -> None:
    if judged.note.by != by_of(identity.person):
        raise Refused(403, f"{judged.note.by} has asked for this: ask for it yourself")


async def _apart(desk: Desk[Any], does: Callable[[], T]) -> T:
    """Do what blocks on a thread of the console."""
    return await asyncio.get_running_loop().run_in_executor(desk.asking, does)
