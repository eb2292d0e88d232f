"""Nothing in the repository points at the machine or the package mirror it was written with."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.structure.sources import REPOSITORY

# An installer's option that names a place, in any spelling an installer reads.
INDEX = re.compile(
    r"--(extra-)?index-url|--find-links|--trusted-host|PIP_(EXTRA_)?INDEX|UV_(DEFAULT_)?INDEX\s*="
)
REGISTRY = re.compile(
    r"https?://[^\s\"'<>)]*(pypi|pythonhosted|npmjs|artifactory|nexus|mirror|devpi)", re.IGNORECASE
)
# Somebody's home or a checkout's place. `/tmp` and the like are every machine's.
MACHINE = re.compile(r"(?<![\w.~$}/-])/(root|work|home/\w+|Users/\w+|workspace)/")
# These two spell out what they look for or take away.
EXEMPT = {"tests/structure/test_no_addresses.py", ".ci/pins"}


def tracked() -> list[str]:
    """The repository's files, new ones included, as git lists them."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return sorted(set(listed.stdout.splitlines()) - EXEMPT)


def addresses(text: str) -> list[str]:
    """The lines of `text` with a registry, an installer's place or a path of one machine."""
    patterns = (INDEX, REGISTRY, MACHINE)
    return [line for line in text.splitlines() if any(p.search(line) for p in patterns)]


def test_no_file_names_a_registry_or_a_machine() -> None:
    """No file says from where to install, or where it lay when it was written."""
    found = {}
    for name in tracked():
        file = REPOSITORY / name
        if file.is_file() and (lines := addresses(file.read_text(errors="replace"))):
            found[name] = lines
    assert found == {}


def test_requirements_are_only_pins_and_hashes() -> None:
    """Every line of the requirements is a comment, a pinned version or a hash of it."""
    line = re.compile(
        r"#.*|[a-z0-9-]+(\[[a-z,]+\])?==[\w.!+]+( ; [^/]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
    )
    for file in sorted((REPOSITORY / "requirements").iterdir()):
        odd = [text for text in file.read_text().splitlines() if not line.fullmatch(text)]
        assert odd == [], file.name


@pytest.mark.parametrize(
    "line",
    [
        "--extra-index-url https://packages.example/simple",
        "see https://files.pythonhosted.org/packages/x",
        "registry = http://mirror.example:8080/npm",
        'HERE = "/root/checkout/src"',
        "cd /work/main",
    ],
)
def test_the_search_finds_an_address(line: str) -> None:
    """An index option, a registry's URL and a machine's own path are each found."""
    assert addresses(f"first\n{line}\nlast") == [line]


@pytest.mark.parametrize(
    "line", ["tests/work/x", "https://kafka.apache.org/documentation", "/tmp/ackfloor", "~/work/x"]
)
def test_the_search_passes_over_other_paths(line: str) -> None:
    """Relative paths, documentation and every machine's folders are no addresses."""
    assert addresses(line) == []
