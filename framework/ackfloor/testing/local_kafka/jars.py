"""Jars by their Maven coordinates, fetched through jgo and used only when their checksum fits.

Every jar is taken alone: the pinned list is the whole class path, so no dependency resolution can
add to it or move a version. Files live in the Maven cache that jgo is configured with
(`~/.m2/repository`, `M2_REPO`); a new one is checked beside its place and moved in whole, so an
interrupted download or two processes fetching at once never leave half a jar behind.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ackfloor.errors import AckfloorError, MissingExtra

KAFKA_VERSION = "4.3.0"
_PARALLEL_DOWNLOADS = 8
_HTTP_TIMEOUT_S = 20
#: How many jars an error names for each cause.
MOST_NAMED = 3


class JarRefused(AckfloorError):
    """A jar's SHA-256 is not the pinned one; it is never put on a class path."""


class JarsUnavailable(AckfloorError):
    """Jars are neither in the local Maven cache nor could they be fetched.

    All of them fail alike where a repository can't be reached: each cause is told once, with the
    first few jars.

    Args:
        missing: coordinate and cause of each jar.
        repositories: name and address of each repository that was asked.
        config: the file that names the repositories.
    """

    def __init__(
        self,
        missing: Sequence[tuple[str, str]],
        repositories: Mapping[str, str] = MappingProxyType({}),
        config: Path | str = "jgo's configuration file",
    ) -> None:
        by_cause: dict[str, list[str]] = {}
        for coordinate, cause in missing:
            by_cause.setdefault(cause, []).append(coordinate)
        causes = "; ".join(f"{cause}: {_first_few(jars)}" for cause, jars in by_cause.items())
        asked = ", ".join(f"{name} ({_host(url)})" for name, url in repositories.items())
        jars = "1 jar" if len(missing) == 1 else f"{len(missing)} jars"
        super().__init__(
            f"could not fetch {jars}{f' from {asked}' if asked else ''}: {causes}\n"
            f"Check the network, or set under [repositories] in {config} a Maven repository that "
            "can be reached: central = https://HOST/PATH\n"
            "Where only a broker is needed, give a running one instead: "
            "ACKFLOOR_BOOTSTRAP_SERVERS=host:port"
        )


@dataclass(frozen=True, slots=True)
class Pin:
    """One jar: its coordinate `group:artifact:version` and its SHA-256 in hexadecimal."""

    coordinate: str
    sha256: str

    def __post_init__(self) -> None:
        if len(self.coordinate.split(":")) != 3 or not all(self.coordinate.split(":")):
            raise ValueError(f"coordinate {self.coordinate!r}: write it as group:artifact:version")
        if len(self.sha256) != 64 or not set(self.sha256) <= set("0123456789abcdef"):
            raise ValueError(
                f"sha256 of {self.coordinate} is {self.sha256!r}: 64 lower-case hex digits needed"
            )


def fetch_jars(pins: Iterable[Pin]) -> list[Path]:
    """The verified local files of `pins`, in their order; what is missing is fetched in parallel.

    Raises:
        JarRefused: a file's checksum is another one.
        JarsUnavailable: some are not cached and cannot be fetched.
        MissingExtra: jgo is not installed.
    """
    from concurrent.futures import ThreadPoolExecutor

    context = _maven()
    unavailable: list[tuple[str, str]] = []

    def get(pin: Pin) -> Path | None:
        try:
            return _verified(context, pin)
        # jgo reports a refused or unreachable repository as RuntimeError or as an OSError.
        except (OSError, RuntimeError) as error:
            unavailable.append((pin.coordinate, _short(error)))
            return None

    with ThreadPoolExecutor(_PARALLEL_DOWNLOADS, "jars") as pool:
        found = list(pool.map(get, pins))
    if unavailable:
        raise JarsUnavailable(sorted(unavailable), context.remote_repos, _config_file())
    return [path for path in found if path is not None]


def broker_jars() -> list[Path]:
    """The class path of Kafka's broker: every jar of the committed list, verified on each call.

    Hashing all 44 MB takes 0.03 s, so nothing has to be remembered between runs.
    """
    return fetch_jars(broker_pins())


def broker_pins() -> list[Pin]:
    """The committed list, in the format of `sha256sum` with coordinates for file names."""
    text = files("ackfloor.testing").joinpath(f"kafka-{KAFKA_VERSION}.sha256").read_text("utf-8")
    rows = (line.split() for line in text.splitlines() if line.strip())
    return [Pin(coordinate, sha256) for sha256, coordinate in rows]


def _maven() -> Any:
    """jgo's Maven context under the user's own jgo settings (cache folder, repositories)."""
    try:
        maven, config, constants = (
            import_module(f"jgo.{name}") for name in ("maven", "config", "constants")
        )
    except ImportError:
        raise MissingExtra("broker", "fetching jars (jgo)") from None
    settings = config.GlobalSettings.load()
    # The user's own first: jgo gives up at the first repository that cannot be reached.
    repositories = {**settings.repositories}
    repositories.setdefault("central", constants.MAVEN_CENTRAL_URL)
    return maven.MavenContext(
        repo_cache=settings.repo_cache, remote_repos=repositories, timeout=_HTTP_TIMEOUT_S
    )


def _verified(context: Any, pin: Pin) -> Path:
    path = Path(_artifact(context, pin).cached_path)
    if path.is_file():
        _check(path, pin, "delete the file, so that it is fetched again")
        return path
    return _download(context, pin, path)


def _download(context: Any, pin: Pin, path: Path) -> Path:
    """Fetch into a folder of our own on the same file system, check, then move into place."""
    context.repo_cache.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".ackfloor-", dir=context.repo_cache))
    try:
        private = type(context)(
            repo_cache=aside, remote_repos=context.remote_repos, timeout=context.timeout
        )
        fetched = Path(_artifact(private, pin).resolve())
        _check(fetched, pin, "the repository serves another file than the pinned one")
        path.parent.mkdir(parents=True, exist_ok=True)
        fetched.replace(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return path


def _artifact(context: Any, pin: Pin) -> Any:
    group, artifact, version = pin.coordinate.split(":")
    return context.project(group, artifact).at_version(version).artifact()


def _check(path: Path, pin: Pin, fix: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != pin.sha256:
        raise JarRefused(
            f"jar {pin.coordinate} refused: {path} has sha256 {found}, "
            f"pinned is {pin.sha256}; {fix}"
        )


def _config_file() -> Path:
    found: Path = import_module("jgo.config").get_settings_path()
    return found


def _first_few(jars: Sequence[str]) -> str:
    more = len(jars) - MOST_NAMED
    named = ", ".join(jars[:MOST_NAMED])
    return f"{named} and {more} more" if more > 0 else named


def _host(url: str) -> str:
    """Of a repository; its address may hold a password."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


def _short(error: Exception) -> str:
    # The causes of a failed connection nest whole request objects; the type says enough.
    text = str(error)
    if isinstance(error, RuntimeError) and "not found in remote" in text:
        return "no repository has it"
    return type(error).__name__
