"""The address of a run, as `--listen` takes it: host and port, and the path of a web service."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from typer.testing import CliRunner, Result

from ackfloor import App
from ackfloor.cli.main import cli
from ackfloor.operations.run_client import Address, NoAddress, address_of
from ackfloor.runtime.supervision.exit_codes import Exit


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:9600", Address("127.0.0.1", 9600)),
        ("0.0.0.0:9600", Address("127.0.0.1", 9600)),
        ("[::]:9600", Address("::1", 9600)),
        ("web:8000/ackfloor", Address("web", 8000, "/ackfloor")),
        ("web:8000/ackfloor/", Address("web", 8000, "/ackfloor")),
        ("web:8000/", Address("web", 8000)),
        ("http://web:8000/a/b", Address("web", 8000, "/a/b")),
        ("http://web/ackfloor", Address("web", 80, "/ackfloor")),
        ("https://shop.example/ackfloor", Address("shop.example", 443, "/ackfloor", secure=True)),
        ("https://[fe80::1]/ackfloor", Address("fe80::1", 443, "/ackfloor", secure=True)),
        ("https://[fe80::1]:8443", Address("fe80::1", 8443, secure=True)),
    ],
)
def test_an_address(listen: str, address: Address) -> None:
    """As runs have it, and as a browser has it."""
    assert address_of(listen) == address


@pytest.mark.parametrize(
    "listen",
    [
        "nowhere", "nowhere/ackfloor", ":9600", "web:", "web:port", "web:65536", "web:9600 /x",
        "ftp://web:9600", "://web:9600", "http://", "https:///x", "http://user@web/ackfloor",
        "web:9600/state?x=1", "web:9600/a#b", "web:9600/a\r\nHost: x", "web:9600/ä", "",
    ],
)  # fmt: skip
def test_no_address(listen: str) -> None:
    """What is wrong is shown as it was given, with what to write."""
    with pytest.raises(NoAddress) as refused:
        address_of(listen)
    assert f"--listen={listen!r}: not an address; write host:port" in str(refused.value)
    assert "127.0.0.1:8000/ackfloor" in str(refused.value)
    assert refused.value.exit_code == Exit.USAGE


def _ended(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.mark.asyncio
async def test_a_worker_inside_a_web_service_is_asked_where_its_pages_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP, as uvicorn serves it; Kafka is away, which is what `status` is asked for."""
    monkeypatch.chdir(tmp_path)
    app = App("shop", kafka={"bootstrap_servers": "127.0.0.1:1"})

    @app.handler("orders")
    async def bill(value: bytes) -> None: ...

    web = FastAPI()
    web.mount("/ackfloor", app.asgi())
    server = uvicorn.Server(uvicorn.Config(web, log_config=None, lifespan="off"))
    with socket.create_server(("127.0.0.1", 0)) as at:
        host = f"127.0.0.1:{at.getsockname()[1]}"
        async with app.running():
            serving = asyncio.create_task(server.serve(sockets=[at]))
            for listen in (f"{host}/ackfloor", f"http://{host}/ackfloor/"):
                shown = await asyncio.to_thread(_ended, "inflight", "--listen", listen)
                assert shown.exit_code == 0, shown.output
            told = await asyncio.to_thread(
                _ended, "status", "--listen", f"{host}/ackfloor", "-o", "json",
                "--bootstrap-servers", "127.0.0.1:1",
            )  # fmt: skip
            of_run = [each for each in json.loads(told.stdout) if each["about"] == "run"]
            assert {each["group"] for each in of_run} == {"shop"}
            assert any("waits for Kafka" in each["detail"] for each in of_run)
            bare = await asyncio.to_thread(_ended, "inflight", "--listen", host)
            assert f"{host} is no run of ackfloor" in str(bare.exception)
            server.should_exit = True
            await serving
