"""Requests: their addresses, headers and the fields of their forms, bounded and never trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from starlette.requests import Request

from ackfloor_monitoring.console.access.gate import Gate, Identity, Refused

#: Bytes and fields that a form may have; one with a payload, which is written in up to three times
#: its bytes, has more.
FORM_BYTES: Final = 64 * 1024
PAYLOAD_FORM_BYTES: Final = 256 * 1024
FORM_FIELDS: Final = 1000
#: Characters that the address of any request may have; a server in front takes 64 KiB, or more.
LONGEST_ADDRESS: Final = 32 * 1024
#: What the login is told of the page that it leads to, and the characters that one may have.
NEXT: Final = "next"
_LONGEST_PATH: Final = 4_000


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a form, in its order: a name may come several times."""

    pairs: Sequence[tuple[str, str]] = ()

    def get(self, name: str) -> str:
        """The first value of a field; empty where it is missing."""
        return next((value for each, value in self.pairs if each == name), "")

    def all(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for each, value in self.pairs if each == name]


def headers_of(request: Request) -> Mapping[str, str]:
    """Names in lower case; of a name that comes twice both values, so that neither is missed."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def peer_of(request: Request) -> str:
    """The address of the connection."""
    return request.client.host if request.client is not None else ""


def origin_of(gate: Gate, request: Request) -> str:
    """From where a request came, for the note of an action: behind a named proxy what that says."""
    return gate.origin(headers_of(request), peer_of(request))


def root_of(request: Request) -> str:
    """The path below which the console is, as addresses have it; empty where that is its host."""
    # With one slash in front: two of them would begin another host's name.
    root = str(request.scope.get("root_path", "")).strip("/")
    return f"/{quote(root)}" if root else ""


def path_of(request: Request) -> str:
    """The path of a request, from the host on."""
    return quote("/" + request.scope["path"].lstrip("/"))


def own_page(path: str) -> str:
    """The address of a page of the console, below its root; empty for what is none.

    Whoever makes a link to the login may write anything there: it leads to no other host.
    """
    if not path.startswith("/c/") or len(path) > _LONGEST_PATH or not path.isprintable():
        return ""
    parts = unquote(path.partition("?")[0]).replace("\\", "/").split("/")
    return "" if {".", ".."} & set(parts) else path


def login_for(request: Request) -> str:
    """The address of the login, which leads to the page that was asked for."""
    # The path of a form leads to nothing that could be looked at.
    if request.method != "GET":
        return "/login"
    asked, query = path_of(request).removeprefix(root_of(request)), request.url.query
    path = own_page(f"{asked}?{query}" if query else asked)
    return f"/login?{urlencode({NEXT: path}, safe='/')}" if path else "/login"


async def identified(gate: Gate, request: Request, sent: str) -> Identity:
    """Who sends a request; raises Refused.

    Args:
        sent: what its form has for the secret of forms.
    """
    length = len(request.scope["path"]) + len(request.scope["query_string"])
    if length > LONGEST_ADDRESS:
        raise Refused(414, f"an address has at most {LONGEST_ADDRESS:,} characters: look for less")
    headers, named = headers_of(request), None
    if gate.who is not None:
        gate.refuse_other_hosts(headers)
        named = await gate.who(request)
    peer, root = peer_of(request), root_of(request)
    return gate.identify(request.method, headers, sent, peer, root, named)


async def form_of(request: Request, most: int = FORM_BYTES) -> Fields:
    """The fields of a form of so many bytes; raises Refused for one that is too large or none."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise Refused(413, f"a form has at most {most:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS)
    except UnicodeDecodeError:
        raise Refused(400, "not a form: it is not UTF-8") from None
    except ValueError:
        why = f"a form has at most {FORM_FIELDS:,} fields: tick fewer, or all of them"
        raise Refused(400, why) from None
    return Fields(pairs)
