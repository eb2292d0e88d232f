"""The settings file as it is watched: read when it has come to rest, and missed when it goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ackfloor.errors import ConfigError
from ackfloor.live.settings_file import LOOK_S, SettingsFile


class Watch:
    """A watched file and a clock."""

    def __init__(self, given: Path | None = None, **environment: str) -> None:
        self.file = SettingsFile(given, environment)
        self.now_s = 0.0

    def looks(self, times: int = 1) -> list[bool]:
        """What it says at the next looks."""
        found = []
        for _ in range(times):
            self.now_s += LOOK_S
            found.append(self.file.changed(self.now_s))
        return found


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    """A settings file."""
    path = tmp_path / "ackfloor.toml"
    path.write_text("[app]\nmax_open = 1\n")
    return path


def write(path: Path, text: str, mtime_s: int) -> None:
    """Write it with a time of its own: two writes may fall into one tick of the file system."""
    path.write_text(text)
    os.utime(path, (mtime_s, mtime_s))


def test_a_change_is_reported_when_it_has_come_to_rest(toml: Path) -> None:
    """Not while it is being written, not twice, and not for its own first reading."""
    watch = Watch(toml)
    assert watch.file.read()[("app", "max_open")].value == 1
    assert watch.looks(3) == [False, False, False]
    write(toml, "", 1)
    assert watch.looks() == [False]
    write(toml, "[app]\nmax_open = 2\n", 2)
    assert watch.looks(2) == [False, True]
    assert watch.file.read()[("app", "max_open")].value == 2
    assert watch.looks(2) == [False, False]


def test_it_is_looked_at_no_more_often_than_said(toml: Path) -> None:
    """A loop may ask ten times a second."""
    watch = Watch(toml)
    watch.file.read()
    watch.looks()
    write(toml, "", 1)
    assert not watch.file.changed(watch.now_s + LOOK_S * 0.9)
    assert watch.looks(2) == [False, True]


def test_a_file_that_goes_is_missed_once_and_found_again(toml: Path) -> None:
    """The old settings stay meanwhile: gone is not the same as empty."""
    watch = Watch(toml)
    watch.file.read()
    text = toml.read_text()
    toml.unlink()
    assert watch.looks(2) == [False, True]
    with pytest.raises(ConfigError, match="No such file"):
        watch.file.read()
    assert watch.looks(3) == [False, False, False]
    write(toml, text, 5)
    assert watch.looks(2) == [False, True]
    assert watch.file.read()[("app", "max_open")].value == 1


def test_the_file_of_the_working_directory_may_come_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is missed when it goes, as one that was named."""
    monkeypatch.chdir(tmp_path)
    watch = Watch()
    assert watch.file.read() == {}
    assert watch.looks(2) == [False, False]
    write(tmp_path / "ackfloor.toml", "[app]\nmax_open = 3\n", 1)
    assert watch.looks(2) == [False, True]
    assert watch.file.read()[("app", "max_open")].value == 3
    (tmp_path / "ackfloor.toml").unlink()
    assert watch.looks(2) == [False, True]
    with pytest.raises(ConfigError, match="the settings file is gone"):
        watch.file.read()


def test_a_link_that_is_turned_is_a_change(tmp_path: Path, toml: Path) -> None:
    """As Kubernetes does it: same name, same size, same time, another file."""
    other = tmp_path / "other.toml"
    for path, text in ((toml, "[app]\nmax_open = 1\n"), (other, "[app]\nmax_open = 2\n")):
        write(path, text, 7)
    link = tmp_path / "link.toml"
    link.symlink_to(toml)
    watch = Watch(ACKFLOOR_CONFIG=str(link))
    watch.file.read()
    fresh = tmp_path / "fresh"
    fresh.symlink_to(other)
    fresh.replace(link)
    assert watch.looks(2) == [False, True]
    assert watch.file.read()[("app", "max_open")].value == 2


TWO = "[app]\nmax_open = 1\n[apps.billing.app]\nmax_open = 5\n[apps.refunds.app]\nmax_open = 7\n"


def test_it_is_read_for_the_app_of_a_group(toml: Path) -> None:
    """The one that the code names, unless a variable or the file names another."""
    toml.write_text(TWO)
    assert SettingsFile(toml, {}, "billing").read()[("app", "max_open")].value == 5
    renamed = SettingsFile(toml, {"ACKFLOOR_APP__GROUP": "refunds"}, "billing")
    assert renamed.read()[("app", "max_open")].value == 7
    toml.write_text(TWO.replace("[app]", '[app]\ngroup = "refunds"'))
    assert SettingsFile(toml, {}, "billing").read()[("app", "max_open")].value == 7


def test_a_run_keeps_to_its_section_when_the_file_renames_its_group(toml: Path) -> None:
    """A new group needs a restart, and so does all that only its section has."""
    toml.write_text(TWO)
    file = SettingsFile(toml, {}, "billing")
    file.read()
    toml.write_text(TWO.replace("[app]", '[app]\ngroup = "refunds"'))
    assert file.read()[("app", "max_open")].value == 5


def test_a_mistake_that_the_section_hides_is_told(toml: Path) -> None:
    """It would count for the next app of the file."""
    toml.write_text("[app]\nmax_open = 0\n[apps.billing.app]\nmax_open = 5\n")
    with pytest.raises(ConfigError, match=r"app\.max_open=0"):
        SettingsFile(toml, {}, "billing").read()
