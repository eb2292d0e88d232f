"""Gate: who sends a request, and whether it may come in; every request passes it.

What is refused here never reaches a page. Without a token file everybody who reaches the console
is the same person, which `binding` allows on a loopback address alone.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Final

from ackfloor import ConfigError
from ackfloor_monitoring.console.access.hosts import host_name
from ackfloor_monitoring.console.access.login_attempts import LoginAttempts
from ackfloor_monitoring.console.access.proxies import NotNamed, Proxies
from ackfloor_monitoring.console.access.request_origin import foreign
from ackfloor_monitoring.console.access.roles import NAME, Person, Role
from ackfloor_monitoring.console.access.sessions import Sessions
from ackfloor_monitoring.console.access.tokens import Tokens, can_not_be_guessed, read_tokens

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

log = logging.getLogger("ackfloor.console")

#: Names who sends a request, in a web app that has let them in; None for nobody.
Who = Callable[["HTTPConnection"], Awaitable[Person | None]]

#: What everybody is called where there are no tokens.
ANYBODY: Final = "anybody on this machine"
SCHEME: Final = "bearer "
#: Seconds that an answer without an end goes on for whom a proxy has named: then it is asked again.
PROXIED_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Identity:
    """A request that came in.

    Attributes:
        csrf: what its forms have to send back.
        goes_on: whether the same person would still come in; for answers that never end.
        asks_again: whether who comes in again after that needs no login: the proxy decides.
    """

    person: Person
    csrf: str
    goes_on: Callable[[], bool]
    asks_again: bool = False


class Refused(Exception):
    """A request that did not come in.

    Attributes:
        status: of the answer: 401 where a login would help.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Gate:
    """Lets requests in.

    Args:
        names: the host names of this console.
        secure: whether browsers reach it over TLS.
        token_file: who may log in; None to let everybody in.
        role: of everybody, without a token file.
        proxies: who is believed to say who somebody is; then nobody else comes in without a token.
        who: names people where the console is a part of another app; then nobody else comes in.
        clock: monotonic seconds.

    Raises:
        ConfigError: the token file can't be used.
    """

    def __init__(
        self,
        names: frozenset[str],
        *,
        secure: bool,
        token_file: Path | None = None,
        role: Role = Role.reader,
        proxies: Proxies | None = None,
        who: Who | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self.secure = secure
        self._token_file = token_file
        self._anybody = Person(ANYBODY, role)
        self._proxies = proxies
        self.who = who
        self._clock = clock
        self._csrf = token_urlsafe(32)
        self._tokens = Tokens({}) if token_file is None else read_tokens(token_file)
        self._read_at = _changed_at(token_file)
        self._file_is_usable = True
        self._sessions = Sessions(clock)
        self._logins = LoginAttempts(clock)
        self._bearers = LoginAttempts(clock)

    @property
    def asks(self) -> bool:
        """Whether it asks for a token."""
        return self._token_file is not None

    def cookie(self, root: str) -> str:
        """The name of the session's cookie.

        Over TLS browsers take `__Host-` from its host alone, for all of its paths.

        Args:
            root: the path below which the console is, and which then has the cookie.
        """
        if not self.secure:
            return "ackfloor"
        return "__Secure-ackfloor" if root else "__Host-ackfloor"

    def refuse_other_hosts(self, headers: Mapping[str, str]) -> str:
        """The console's scheme and host as the browser has them; raises Refused for others."""
        host = headers.get("host", "")
        if host_name(host) not in self._names:
            raise Refused(
                421, f"{host!r} is no name of this console: --public-url names its proxy's"
            )
        return f"{'https' if self.secure else 'http'}://{host}"

    def identify(
        self,
        method: str,
        headers: Mapping[str, str],
        sent: str,
        peer: str = "",
        root: str = "",
        named: Person | None = None,
    ) -> Identity:
        """Let a request in.

        Args:
            headers: names in lower case.
            sent: what its form has for the secret of forms.
            peer: the address of its connection.
            root: the path below which the console is.
            named: by `who`.

        Raises:
            Refused: it has no session or token, its address tried too many, or another site sends
                it.
        """
        own = self.refuse_other_hosts(headers)
        self._read_again()
        token = bearer_of(headers)
        # Without tokens of ours it is another's: a proxy may pass on that of its own login.
        if token and (self.asks or (self._proxies is None and self.who is None)):
            # No browser adds this header by itself: it needs no proof of where it comes from.
            person = self._person_of(token, self._bearers, peer)
            return Identity(person, "", lambda: self._has_token(token, person))
        identity = self._of_browser(headers, peer, root, named)
        if why := foreign(method, headers, own, identity.csrf, sent):
            raise Refused(403, why)
        return identity

    def _of_browser(
        self, headers: Mapping[str, str], peer: str, root: str, named: Person | None
    ) -> Identity:
        if person := self._named_by_app(named) or self._named_by_proxy(headers, peer):
            secret = hmac.digest(self._csrf.encode(), person.name.encode(), "sha256").hex()
            until_s = self._clock() + PROXIED_S
            return Identity(person, secret, lambda: self._clock() < until_s, asks_again=True)
        if not self.asks:
            return Identity(self._anybody, self._csrf, lambda: True)
        secret = self._secret_of(headers, root)
        session = self._sessions.of(secret)
        if session is None:
            raise Refused(401, "log in first")
        return Identity(session.person, session.csrf, lambda: self._has_session(secret))

    def _named_by_app(self, named: Person | None) -> Person | None:
        if self.who is None:
            return None
        if named is None:
            raise Refused(403, "the app that this console is a part of names nobody: log in there")
        if not _is_sound(named):
            why = f"the app that this console is a part of names {named!r:.200}, which is no Person"
            raise Refused(403, f"{why} with a Role and a name of letters, digits and . _ @ -")
        return named

    def _named_by_proxy(self, headers: Mapping[str, str], peer: str) -> Person | None:
        if self._proxies is None:
            return None
        try:
            person = self._proxies.person(peer, headers)
        except NotNamed as exc:
            raise Refused(403, str(exc)) from None
        if person is None and not self.asks:
            raise Refused(403, f"{peer} is none of the proxies that --proxy names: come by one")
        return person

    # Whether who came in once would still; the file is looked at, since nobody else may ask.

    def _has_token(self, token: str, person: Person) -> bool:
        return self._file_is_sound() and self._tokens.person(token) == person

    def _has_session(self, secret: str) -> bool:
        return self._file_is_sound() and self._sessions.has(secret)

    def _file_is_sound(self) -> bool:
        try:
            self._read_again()
        except Refused:
            return False
        return True

    def origin(self, headers: Mapping[str, str], peer: str) -> str:
        """From where a request came, as far as whoever has sent it on is believed.

        Args:
            peer: the address of its connection.
        """
        return peer if self._proxies is None else self._proxies.origin(peer, headers)

    def log_in(self, headers: Mapping[str, str], address: str, token: str) -> str:
        """Begin a session; returns the cookie's value.

        Args:
            address: of the client.

        Raises:
            Refused: there is no such token, this address tried too often, or another site asks.
        """
        own = self.refuse_other_hosts(headers)
        # Who is not logged in has no session's secret: only browsers that say the page may log in.
        if why := foreign("POST", headers, own, "", ""):
            raise Refused(403, why)
        self._read_again()
        return self._sessions.begin(self._person_of(token, self._logins, address), token)

    def _person_of(self, token: str, attempts: LoginAttempts, address: str) -> Person:
        """Whose token it is; raises Refused for a wrong one, and where too many were wrong.

        Behind a proxy all come from its address. So what nobody can guess is looked up whoever has
        tried how many: no stranger locks its owner out. A token that somebody has made up waits.
        """
        wait_s = attempts.wait_s(address)
        person = None
        if not wait_s or can_not_be_guessed(token):
            person = self._tokens.person(token)
        if person is not None:
            return person
        if wait_s:
            raise Refused(429, f"too many wrong tokens: try again in {wait_s:.0f} s")
        attempts.failed(address)
        raise Refused(401, "no such token")

    def log_out(self, headers: Mapping[str, str], root: str) -> None:
        """End the session of a request, to a console below this path."""
        self._sessions.end(self._secret_of(headers, root))

    def _secret_of(self, headers: Mapping[str, str], root: str) -> str:
        wanted = self.cookie(root)
        for each in headers.get("cookie", "").split(";"):
            name, _, value = each.partition("=")
            # Browsers send the cookie of the longest path first: that of this console.
            if name.strip() == wanted:
                return value.strip()
        return ""

    def _read_again(self) -> None:
        """Read the token file if it changed; raises Refused while it can't be used."""
        changed_at = _changed_at(self._token_file)
        if self._token_file is not None and changed_at != self._read_at:
            self._read_at = changed_at
            try:
                self._tokens, self._file_is_usable = read_tokens(self._token_file), True
            except ConfigError as exc:
                self._tokens, self._file_is_usable = Tokens({}), False
                # It names the file and who has tokens: that is for the operator, not for anybody.
                log.error("the console lets nobody in: %s", exc)  # noqa: TRY400 -- it says enough
            self._sessions.keep_only(self._tokens.people)
        if not self._file_is_usable:
            raise Refused(503, "nobody can come in now: the console's log says why")


def bearer_of(headers: Mapping[str, str]) -> str:
    """The token of the header Authorization; empty if there is none."""
    given = headers.get("authorization", "")
    return given[len(SCHEME) :].strip() if given.lower().startswith(SCHEME) else ""


def _is_sound(person: object) -> bool:
    """Whether what an app has named, which may have no type checker, is somebody."""
    if not isinstance(person, Person) or not isinstance(person.role, Role):
        return False
    return NAME.fullmatch(person.name) is not None


def _changed_at(path: Path | None) -> tuple[int, int] | None:
    """What differs when a file was written; None where there is none."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_ino)
