"""Jars are used only when their checksum fits, and what cannot be fetched is named."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from ackfloor.errors import MissingExtra
from ackfloor.testing.local_kafka.jars import (
    JarRefused,
    JarsUnavailable,
    Pin,
    broker_pins,
    fetch_jars,
)

BODY = b"what the repository serves"
SHA = hashlib.sha256(BODY).hexdigest()
TOOL = Pin("org.example:tool:1.0", SHA)


class _Repository(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/org/example/tool/1.0/tool-1.0.jar"
        self.send_response(200 if found else 404)
        self.end_headers()
        if found:
            self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output quiet."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository on loopback that holds one jar; the local cache folder is returned."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Repository)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    config = tmp_path / "jgo.conf"
    config.write_text(f"[repositories]\ncentral = http://127.0.0.1:{server.server_port}\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield tmp_path / "m2"
    server.shutdown()
    thread.join()
    server.server_close()


def test_fetched_once_then_cached(repository: Path) -> None:
    """A jar is fetched into the Maven cache and read from there without a network."""
    [path] = fetch_jars([TOOL])
    assert path == repository / "org/example/tool/1.0/tool-1.0.jar"
    assert path.read_bytes() == BODY
    path.touch()
    stamp = path.stat().st_mtime_ns
    assert fetch_jars([TOOL])[0].stat().st_mtime_ns == stamp


def test_foreign_download_is_refused_and_not_kept(repository: Path) -> None:
    """A download with another checksum is refused by name and leaves nothing in the cache."""
    with pytest.raises(JarRefused, match=r"org\.example:tool:1\.0 refused.*another file"):
        fetch_jars([Pin(TOOL.coordinate, "0" * 64)])
    assert [path for path in repository.rglob("*") if path.is_file()] == []


def test_changed_cache_is_refused(repository: Path) -> None:
    """A cached jar that was changed is refused with its path and the way out."""
    [path] = fetch_jars([TOOL])
    path.write_bytes(BODY + b"!")
    with pytest.raises(JarRefused, match=r"tool-1\.0\.jar has sha256.*delete the file"):
        fetch_jars([TOOL])


def test_missing_jars_are_named(repository: Path) -> None:
    """Jars that no repository has are named, with the way to give a broker instead."""
    pins = [Pin(f"org.example:absent:{version}", SHA) for version in ("1", "2")]
    with pytest.raises(JarsUnavailable) as caught:
        fetch_jars(pins)
    named = "no repository has it: org.example:absent:1, org.example:absent:2\n"
    assert named in str(caught.value)
    assert "ACKFLOOR_BOOTSTRAP_SERVERS" in str(caught.value)


def test_no_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network the jar and the kind of failure are named."""
    config = tmp_path / "jgo.conf"
    config.write_text("[repositories]\ncentral = http://me:secret@127.0.0.1:1\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(config))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(JarsUnavailable) as caught:
        fetch_jars([TOOL])
    cause, fix, _ = str(caught.value).splitlines()
    told = "could not fetch 1 jar from central (127.0.0.1:1): ConnectionError: org.example:tool:1.0"
    assert cause == told
    assert f"set under [repositories] in {config} a Maven repository" in fix
    with pytest.raises(JarsUnavailable) as caught:
        fetch_jars(broker_pins())
    assert str(caught.value).count("ConnectionError") == 1
    assert "and 43 more\n" in str(caught.value)


def test_missing_extra_prints_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jgo the message is the line that installs it."""
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ackfloor\[broker\]'"):
        fetch_jars([TOOL])


@pytest.mark.parametrize("coordinate", ["org.example:tool", "a:b:c:d", "a::1"])
def test_coordinate_has_three_parts(coordinate: str) -> None:
    """A coordinate that is not group:artifact:version is refused before any look-up."""
    with pytest.raises(ValueError, match="group:artifact:version"):
        Pin(coordinate, SHA)


def test_broker_list_is_pinned_without_addresses() -> None:
    """The committed list pins each jar of Kafka 4.3.0 once."""
    coordinates = [pin.coordinate for pin in broker_pins()]
    assert "org.apache.kafka:kafka_2.13:4.3.0" in coordinates
    assert len(coordinates) == len(set(coordinates)) == 46
