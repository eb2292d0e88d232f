"""Runs that are named by a DNS name: as many as it has addresses, asked for again each time."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ackfloor.operations.run_client import Address, NoAddress, address_of
from ackfloor_monitoring.console.reads.runs.run_names import RunNames, addresses, checked
from tests.monitoring.console.page_text import OVERVIEW, words
from tests.monitoring.console.served_console import console_of
from tests.monitoring.console.shown_cluster import Kafka, Run


class Dns:
    """A name server of one name."""

    def __init__(self, *found: str) -> None:
        self.found: Sequence[str] = found

    def __call__(self, name: str, port: int) -> Sequence[str]:
        """Its addresses."""
        assert (name, port) == ("workers", 9600)
        if not self.found:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return self.found


def test_a_name_is_a_run_at_each_address() -> None:
    """Those that come and go are seen; an address that is given as well is asked once."""
    dns = Dns("10.0.0.1", "fd00::1")
    names = RunNames(["10.0.0.1:9600", "dns+workers:9600"], dns)
    given = {"10.0.0.1:9600": "10.0.0.1:9600", "[fd00::1]:9600": "dns+workers:9600"}
    assert names.now() == (given, frozenset(), [])
    dns.found = ["10.0.0.2"]
    assert list(names.now().given) == ["10.0.0.1:9600", "10.0.0.2:9600"]


def test_an_address_that_its_name_has_left_is_kept_while_somebody_answers_there() -> None:
    """And comes back like any other."""
    dns = Dns("10.0.0.1", "10.0.0.2")
    names = RunNames(["dns+workers:9600"], dns)
    names.now()
    dns.found = ["10.0.0.2"]
    for _ in range(2):
        found = names.now(recent={"10.0.0.1:9600"})
        assert list(found.given) == ["10.0.0.2:9600", "10.0.0.1:9600"]
        assert found.left == {"10.0.0.1:9600"}
    dns.found = ["10.0.0.1"]
    assert names.now().left == frozenset()
    dns.found = ["10.0.0.2"]
    assert list(names.now().given) == ["10.0.0.2:9600"]


def test_the_path_of_the_pages_stays() -> None:
    """A web service has mounted them."""
    assert list(RunNames(["dns+workers:9600/ackfloor"], Dns("10.0.0.1")).now().given) == [
        "10.0.0.1:9600/ackfloor"
    ]


def test_a_name_that_is_not_resolved_for_a_moment_keeps_its_runs() -> None:
    """And is named."""
    dns = Dns("10.0.0.1")
    names = RunNames(["dns+workers:9600"], dns)
    names.now()
    dns.found = ()
    found, _, [failed] = names.now()
    assert list(found) == ["10.0.0.1:9600"]
    assert failed.error == "dns+workers:9600: try again"


def test_a_name_that_no_resolver_takes_leaves_the_other_runs() -> None:
    """It can't even be asked for."""
    found, _, [failed] = RunNames(["127.0.0.1:1", "dns+a..b:9600"]).now()
    assert list(found) == ["127.0.0.1:1"]
    assert failed.run == "dns+a..b:9600"


def test_the_names_of_this_machine_are_resolved() -> None:
    """By the system's resolver."""
    assert "127.0.0.1" in addresses("localhost", 9600)


def test_runs_of_a_name_with_tls_have_its_certificate() -> None:
    """Each is asked at its address, and has to be who the name says."""
    dns = Dns("10.0.0.1", "fd00::1")
    found = list(RunNames(["dns+https://workers:9600/ackfloor"], dns).now().given)
    assert found == [
        "https://10.0.0.1:9600/ackfloor#workers",
        "https://[fd00::1]:9600/ackfloor#workers",
    ]
    assert address_of(found[1]) == Address(
        "fd00::1", 9600, "/ackfloor", secure=True, name="workers"
    )


@pytest.mark.parametrize("given", ["dns+", "dns+workers", "dns+ftp://workers:9600"])
def test_what_is_no_name_is_refused(given: str) -> None:
    """Nor a scheme that no run speaks."""
    with pytest.raises(NoAddress):
        checked(given)


def test_runs_of_a_name_are_shown_and_one_that_is_unknown_is_named(
    run: Run, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no name leads anywhere: then no other run is asked instead."""
    del kafka
    port = run.listen.rpartition(":")[2]

    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "workers":
            return [(0, 0, 0, "", ("127.0.0.1", int(port)))]
        return real(host, *_, **__)

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    (tmp_path / "ackfloor.toml").write_text(f'[app]\nlisten = "{run.listen}"\n')
    with console_of(f"dns+workers:{port}") as console:
        said = words(console.ask(OVERVIEW).text)
    assert f"{run.listen}: group billing, 1 worker, ready" in said
    with console_of("dns+nowhere.invalid:9600") as console:
        said = words(console.ask(OVERVIEW).text)
    assert "dns+nowhere.invalid:9600:" in said
    assert "group billing" not in said
