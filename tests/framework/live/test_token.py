"""The token of a run: where it is, who can read it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackfloor.errors import ConfigError
from ackfloor.live.token import TokenFile, read_token, token_path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"XDG_RUNTIME_DIR": "/run/me", "XDG_CACHE_HOME": "/c"}, "/run/me/ackfloor"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/ackfloor"),
        ({"ACKFLOOR_STATE_DIR": "/s", "XDG_RUNTIME_DIR": "/run/me"}, "/s"),
        ({}, str(Path.home() / ".cache" / "ackfloor")),
    ],
)
def test_its_place_follows_from_the_address(environment: dict[str, str], expected: str) -> None:
    """So that the run and who changes it find the same without a word."""
    path = token_path("127.0.0.1:9600", None, environment)
    assert str(path) == f"{expected}/run-127.0.0.1-9600.token"
    assert token_path("https://127.0.0.1:9600", None, environment) == path


def test_an_address_can_not_lead_elsewhere() -> None:
    """Whatever stands in it is one file's name; a named file is taken as it is."""
    for listen in ("[::1]:9600", "../../etc/x:1", "a/b:1"):
        path = token_path(listen, None, {"ACKFLOOR_STATE_DIR": "/s"})
        assert path.parent == Path("/s")
    assert token_path("x:1", "~/t", {}) == Path.home() / "t"


def test_each_run_has_a_token_of_its_own_that_its_user_alone_can_read(tmp_path: Path) -> None:
    """Also over a file that somebody left there, with any mode, or a link."""
    path = tmp_path / "deep" / "run.token"
    first = TokenFile(path, keep=False)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o644)
    second = TokenFile(path, keep=False)
    assert read_token(path) == second.token != first.token
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    path.unlink()
    path.symlink_to(elsewhere)
    third = TokenFile(path, keep=False)
    assert (elsewhere.read_text(), read_token(path)) == ("mine", third.token)
    first.remove()
    assert path.exists()
    third.remove()
    assert list(path.parent.iterdir()) == []
    third.remove()


def test_a_token_that_is_there_is_used_and_stays(tmp_path: Path) -> None:
    """A mounted secret; one that is named and not there is made."""
    path = tmp_path / "secret"
    path.write_text("s" * 32 + "\n")
    path.chmod(0o400)
    kept = TokenFile(path, keep=True)
    assert kept.token == "s" * 32
    kept.remove()
    assert path.exists()
    made = TokenFile(tmp_path / "new", keep=True)
    assert read_token(tmp_path / "new") == made.token
    made.remove()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (b"x" * 40, 0o644, "chmod 600"),
        (b"x" * 40, 0o640, "mode 640"),
        (b"short", 0o600, "no token"),
        (b"", 0o600, "no token"),
        (b"x" * 20 + b"\n" + b"y" * 20, 0o600, "no token"),
        (b"\xff" * 40, 0o600, "no token"),
    ],
)
def test_what_is_no_token_is_refused(tmp_path: Path, text: bytes, mode: int, why: str) -> None:
    """With the file and what to do."""
    path = tmp_path / "t"
    path.write_bytes(text)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=why) as refused:
        read_token(path)
    assert str(path) in str(refused.value)


def test_a_place_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    """A file where a folder should be; and a folder where the token should be."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "t", tmp_path):
        with pytest.raises(ConfigError, match="can't be written"):
            TokenFile(path, keep=False)
    with pytest.raises(ConfigError, match="control_token_file"):
        read_token(tmp_path)
