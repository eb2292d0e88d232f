"""A Prometheus server for a test: what it scrapes, the rules it goes by, and its HTTP API."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.framework.cli.command import PATIENCE_S

# `make test` names what it leaves out; .ci/run installs it, or fails.
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="prometheus is not installed (Debian's package prometheus): no real server has scraped",
)
# With what follows the address: of a line that is half written it may be the half.
_LISTENING = re.compile(r'msg="Listening on" address=([\d.:]+)\s')


class Prometheus:
    """A server of its own in a folder, on any free port; it scrapes every second."""

    def __init__(self, folder: Path, target: str, rules: Path) -> None:
        (folder / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [f"{rules}/*.yml"],
                    "scrape_configs": [
                        {"job_name": "shop", "static_configs": [{"targets": [target]}]}
                    ],
                }
            )
        )
        self._log = folder / "prometheus.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    "--web.listen-address=127.0.0.1:0",
                    "--enable-feature=exemplar-storage",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.address = self._listening()

    def _listening(self) -> str:
        until_s = time.monotonic() + PATIENCE_S
        while not (found := _LISTENING.search(self._log.read_text())):
            if self._process.poll() is not None or time.monotonic() > until_s:
                self.close()
                pytest.fail(f"prometheus does not listen:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.05)
        return f"http://{found[1]}"

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of `/api/v1/`; a refusal fails the test with its sentence."""
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as refused:
            with refused:
                pytest.fail(f"{path} {parameters}: {refused.read().decode()}")

    def ready(self) -> bool:
        """Whether it answers; it listens before it does."""
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=PATIENCE_S):
                return True
        except urllib.error.HTTPError as refused:
            refused.close()
            return False

    def series(self, expression: str) -> list[Any]:
        """What an expression gives now."""
        return list(self.ask("query", query=expression)["result"])

    def value(self, expression: str) -> float | None:
        """The value of the only series that there is, or None where there is none."""
        series = self.series(expression)
        assert len(series) <= 1, series
        return float(series[0]["value"][1]) if series else None

    def names(self) -> set[str]:
        """The names of all series."""
        return set(self.ask("label/__name__/values"))

    def traces(self, series: str) -> set[str]:
        """The traces that the exemplars of the last hour name."""
        now_s = time.time()
        span = {"start": f"{now_s - 3600}", "end": f"{now_s + 3600}"}
        found = self.ask("query_exemplars", query=series, **span)
        return {each["labels"]["trace_id"] for one in found for each in one["exemplars"]}

    def rules(self) -> list[dict[str, Any]]:
        """Every rule with how its last evaluation went."""
        return [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]

    def close(self) -> None:
        """Leave nothing running."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
