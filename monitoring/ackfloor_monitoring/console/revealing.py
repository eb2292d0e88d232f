"""Revealing: what redaction hides of one dead letter, in answer to a form and never to a link.

The form says why. The answer has no address of its own, so that nothing of it is in a link, in a
browser's history, or on a page that somebody else opens; who loads it again looks again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ackfloor import AckfloorError, SettingError
from ackfloor.core.records.redaction import NO_REDACTION
from ackfloor_monitoring.console.access.gate import Gate, Refused
from ackfloor_monitoring.console.access.roles import Right
from ackfloor_monitoring.console.acting_endpoints import refuse_without
from ackfloor_monitoring.console.acts.corrections.payload_edits import why_not_editable
from ackfloor_monitoring.console.acts.corrections.reveals import Revealed, Reveals
from ackfloor_monitoring.console.forms import form_of, identified, origin_of
from ackfloor_monitoring.console.pages.dead_letter_page import DEAD_LETTER, facts_of
from ackfloor_monitoring.console.pages.menu import MENU
from ackfloor_monitoring.console.rendering import rendered


class RevealEndpoint:
    """What answers such forms.

    Args:
        reveals: cluster -> who reveals there.
    """

    def __init__(self, reveals: Mapping[str, Reveals], gate: Gate) -> None:
        self._reveals = reveals
        self._gate = gate

    async def reveal(self, request: Request) -> Response:
        """Note the look, then show all of it."""
        form = await form_of(request)
        identity = await identified(self._gate, request, form.get("csrf"))
        refuse_without(Right.reveal, identity)
        name = request.path_params["cluster"]
        if name not in self._reveals:
            raise Refused(404, f"no cluster {name!r}: {', '.join(self._reveals)}")
        reveals = self._reveals[name]
        asking = reveals.cluster.asking
        look = partial(reveals.reveal, form, identity.person, origin_of(self._gate, request))
        loop = asyncio.get_running_loop()
        try:
            revealed = await loop.run_in_executor(asking, look)
            facts = await loop.run_in_executor(asking, partial(_facts, reveals, revealed))
        except SettingError as exc:
            raise Refused(400, str(exc)) from None
        except AckfloorError as exc:
            raise Refused(503, str(exc)) from None
        return rendered(
            request,
            "revealed.html",
            200,
            **facts,
            page=DEAD_LETTER,
            pages=MENU,
            cluster=name,
            clusters=list(self._reveals),
            identity=identity,
            acts=True,
            gate=self._gate,
        )


def _facts(reveals: Reveals, revealed: Revealed) -> Mapping[str, object]:
    """What the template shows, with nothing left out, and the payload to be corrected."""
    value = revealed.found.value
    why = why_not_editable(value)
    return {
        **facts_of(reveals.cluster, revealed.found, NO_REDACTION, sees_payloads=True),
        "revealed": revealed,
        "why_not_editable": why,
        "text": "" if why or value is None else value.decode(),
    }
