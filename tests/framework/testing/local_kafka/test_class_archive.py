"""An archive of classes is made by a run, taken by the next ones, and never half of one."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from ackfloor.testing.local_kafka.class_archive import ArchiveFailed, ClassArchive, cache_folder
from ackfloor.testing.local_kafka.java import Java, find_java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["installed", "bundled"])
def java(request: pytest.FixtureRequest) -> Java:
    """Either Java: the one of a distribution, and one that builds on no archive of its own."""
    return find_java(request.param)


def _run(java: Java, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(java.executable), *options, "-version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def _archived(java: Java, archive: ClassArchive) -> bool:
    """Whether Java takes the archive: asked to tell where it has its classes from."""
    ran = _run(java, *archive.options(), "-Xlog:class+load=info:stderr")
    return "shared objects file" in ran.stderr


def _made(java: Java) -> tuple[ClassArchive, Path]:
    archive = ClassArchive.of(java, "tool", [])
    with archive.training() as options:
        _run(java, *options)
    assert archive.path is not None
    return archive, archive.path


def test_a_training_run_makes_what_the_next_run_takes(java: Java, tmp_path: Path) -> None:
    """In the user's cache folder, and nothing else is left there."""
    archive = ClassArchive.of(java, "tool", [])
    assert (archive.options(), archive.works()) == ((), False)
    with archive.training() as options:
        _run(java, *options)
        assert archive.path is None, "not before Java has been seen to start with it"
    assert list(cache_folder().iterdir()) == [archive.path]
    assert cache_folder().is_relative_to(tmp_path)
    assert archive.works()
    assert _archived(java, archive)


def test_java_says_nothing_of_an_archive_that_does_not_fit(java: Java) -> None:
    """It goes on without: standard output is the program's."""
    archive, _ = _made(java)
    ran = _run(java, *archive.options(), "-cp", "/another.jar")
    assert (ran.stdout, "version" in ran.stderr, "rchive" in ran.stderr) == ("", True, False)


def test_half_an_archive_is_none(java: Java) -> None:
    """Of a copy that was cut short: Java could die of it. Another one can be made."""
    archive, path = _made(java)
    whole = path.read_bytes()
    path.unlink()  # it is read-only
    path.write_bytes(whole[: len(whole) // 3])
    assert (archive.options(), archive.path, archive.works()) == ((), None, False)
    _made(java)
    assert archive.works()


def test_an_archive_that_was_spoilt_is_tried(java: Java, tmp_path: Path) -> None:
    """Java 25 dies of this one and 17 goes on; `prepare` can tell, and makes another one."""
    archive, path = _made(java)
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:8192] + bytes(len(whole) - 8192))
    assert archive.path == path
    command = [str(java.executable), *archive.options(), "-version"]
    started = subprocess.run(
        command, capture_output=True, check=False, timeout=120, cwd=tmp_path / "cache"
    )
    assert archive.works() == (started.returncode == 0) == (java.version < 25)
    _made(java)
    assert archive.works()
    assert not list(tmp_path.glob("hs_err*"))


def test_a_run_whose_archive_is_no_good_is_refused(tmp_path: Path) -> None:
    """Before it is where others take it from."""
    java = find_java("installed")
    archive = ClassArchive.of(java, "tool", [])
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(ArchiveFailed, match="no good"))
        options = stack.enter_context(archive.training())
        _run(java, *options)
        written = Path(options[0].partition("=")[2])
        whole = written.read_bytes()
        written.unlink()
        written.write_bytes(whole[: len(whole) // 3])
    assert list(cache_folder().iterdir()) == []


def test_a_run_that_wrote_none_is_told(java: Java) -> None:
    """One that was killed, for instance."""
    archive = ClassArchive.of(java, "tool", [])
    with pytest.raises(ArchiveFailed, match="wrote no archive"), archive.training():
        _run(java)
    assert list(cache_folder().iterdir()) == []


def test_other_jars_have_another_archive(java: Java, tmp_path: Path) -> None:
    """A jar that was replaced is another one; one whose time an image has rounded is not."""
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"no matter")
    os.utime(jar, ns=(1_700_000_000_123_456_789,) * 2)
    first = ClassArchive.of(java, "tool", [jar])
    os.utime(jar, (1_700_000_000, 1_700_000_000))
    assert ClassArchive.of(java, "tool", [jar]) == first
    jar.write_bytes(b"something else")
    assert ClassArchive.of(java, "tool", [jar]) != first
    assert ClassArchive.of(java, "tool", []) != first


def test_an_archive_that_somebody_else_has_made_is_taken(java: Java) -> None:
    """As one in an image: its time can't be set, and it need not be."""
    archive, path = _made(java)

    def refused(*_: object) -> None:
        raise PermissionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "utime", refused)
        assert str(path) in archive.options()[0]
        patch.setattr(os, "access", lambda *_: False)
        assert archive.options() == ()


def test_an_archive_that_the_user_chose_counts(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java takes one, and ends with an error where it is given two ways to it."""
    archive, _ = _made(java)
    assert archive.options(["-Xmx256m"])
    for chosen in ("-Xshare:off", "-XX:SharedArchiveFile=mine", "-XX:AOTCache=mine"):
        assert archive.options(["-Xmx256m", chosen]) == ()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx256m")
    assert archive.options()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx256m -Xshare:auto")
    assert archive.options() == ()
    with pytest.raises(ArchiveFailed, match="JAVA_TOOL_OPTIONS chooses"), archive.training():
        pytest.fail("Java would end with an error")


def test_what_nobody_has_used_for_a_month_goes(java: Java) -> None:
    """When another one is made: it is of a Java or of packages that are gone."""
    folder = cache_folder()
    folder.mkdir(parents=True)
    month_s = 31 * 86_400
    for name, age_s in (("old", month_s), ("new", 0)):
        (folder / f"{name}.jsa").touch()
        os.utime(folder / f"{name}.jsa", (time.time() - age_s,) * 2)
    killed = folder / ".making-x"
    killed.mkdir()
    (killed / "half.jsa").touch()
    os.utime(killed, (time.time() - month_s,) * 2)
    archive, path = _made(java)
    assert {file.name for file in folder.iterdir()} == {"new.jsa", path.name}
    os.utime(path, (0, 0))
    archive.options()
    assert path.stat().st_mtime > time.time() - 60


def test_a_java_that_can_make_none_is_told(tmp_path: Path) -> None:
    """Before 25 another one is built on Java's own, which not each Java brings."""
    executable = tmp_path / "java" / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.touch()
    archive = ClassArchive.of(Java(executable, 21, "JAVA_HOME"), "tool", [])
    with pytest.raises(ArchiveFailed, match="no archive of its own classes"), archive.training():
        pytest.fail("there is nothing to train")


def test_a_folder_that_cannot_be_written_is_told(java: Java, cache: Path) -> None:
    """With its name and the reason."""
    cache.write_text("a file, where the folder should be")
    archive = ClassArchive.of(java, "tool", [])
    with pytest.raises(ArchiveFailed, match=f"{cache}.*: "), archive.training():
        pytest.fail("there is nowhere to write to")


def test_why_none_was_written_is_told(java: Java) -> None:
    """By the last that Java has said of it."""
    archive = ClassArchive.of(java, "tool", [])
    failed = pytest.raises(ArchiveFailed, match=r"wrote no archive: .*the reason")
    with failed, archive.training() as options:
        said = Path(options[1].rpartition("=")[2])
        said.write_text("one thing\n[0.1s][error][cds] the reason\n")


def test_a_folder_that_java_takes_for_two_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java 25 divides what it is given at colons."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a:b"))
    archive = ClassArchive.of(find_java("bundled"), "tool", [])
    with pytest.raises(ArchiveFailed, match=r"a:b.*XDG_CACHE_HOME"), archive.training():
        pytest.fail("Java would end with an error")


def test_a_user_without_a_home_has_none(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers start as they did."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", nowhere)
    assert ClassArchive.of(java, "tool", []).options() == ()
