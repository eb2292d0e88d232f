"""The files that users take out of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

import ackfloor_monitoring
from ackfloor_monitoring.files import main

PACKAGE = Path(ackfloor_monitoring.__file__).parent


def test_all_files_are_written_and_others_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are in the package, over what older ones held, into a folder that need not exist."""
    folder = tmp_path / "a" / "b"
    assert main([str(folder)]) == 0
    (folder / "alerts" / "own.yml").write_text("groups: []\n")
    (folder / "alerts" / "run.yml").write_text("old\n")
    assert main([str(folder)]) == 0
    written = {file.relative_to(folder): file.read_bytes() for file in folder.rglob("*.*")}
    assert written.pop(Path("alerts/own.yml")) == b"groups: []\n"
    sources = [*PACKAGE.glob("alerts/*.yml"), *PACKAGE.glob("dashboards/*.json")]
    assert written == {file.relative_to(PACKAGE): file.read_bytes() for file in sources}
    assert len(capsys.readouterr().out.splitlines()) == 2 * len(sources)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["a", "b"]])
def test_anything_but_a_folder_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With a line that says how."""
    assert main(arguments) == 2
    assert capsys.readouterr().err == "usage: python -m ackfloor_monitoring.files FOLDER\n"


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the system's own words, which name it."""
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file")]) == 1
    assert str(tmp_path / "file") in capsys.readouterr().err
