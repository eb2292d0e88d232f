"""Where a request comes from: an action is taken from the console's own pages alone.

Another site can make a browser send a request with the cookie of who is logged in here. Browsers
say where a request comes from in `Sec-Fetch-Site` and `Origin` (Fetch Metadata, RFC 6454), which
no page can forge; what sends neither has to send the session's own secret in the form.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

SAFE: Final = frozenset({"GET", "HEAD"})


def foreign(method: str, headers: Mapping[str, str], own: str, csrf: str, sent: str) -> str:
    """Why a request does not come from our own page; empty if it does or changes nothing.

    Args:
        headers: names in lower case.
        own: scheme and host of this console, as the browser has them: `https://host:port`.
        csrf: the secret of the session's forms; empty if there is no session.
        sent: what the form sent for it.
    """
    if method in SAFE:
        return ""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return f"the request comes from another site (Sec-Fetch-Site: {site})"
    if origin is not None and origin != own:
        return f"the request comes from {origin}, and this console is {own}"
    if (
        site is None
        and origin is None
        and not (csrf and hmac.compare_digest(csrf.encode(), sent.encode()))
    ):
        return "the browser does not say which page the request comes from: load the page again"
    return ""
