"""The README is true: its programs run, its commands exist, its links lead somewhere.

All `python` blocks are run in order in one empty folder; one whose first line is a comment with
a file name (`# billing.py`) is kept under that name for those after it, and a `test_*.py` is run by
pytest. Of the shell blocks, commands that need no broker are run in the same folder; of the others
the sub-command and every option have to exist. A kind of command not known here is a failure.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.structure.sources import REPOSITORY

README = REPOSITORY / "README.md"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
SHELLS = {"bash", "console", "sh", "shell"}
# They start a broker or work on one; `make demo` and the tests of the command line run them.
NEEDS_BROKER = {"broker", "demo", "run", "topics"}
# Commands of the shell itself, and of tools that fetch this repository.
NOT_OURS = {"cd", "curl", "export", "git"}


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Each fenced block: its language and its text."""
    for match in BLOCK.finditer(text):
        yield match[1], match[2]


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block as words; with prompts in it, the other lines are output."""
    lines = text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(words: list[str], folder: Path) -> str:
    """What a command prints in `folder`; its failure fails the test."""
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    env |= {"PYTHONPATH": str(folder), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_command(words: list[str], folder: Path) -> None:
    """Run a command of a shell block, or look that all of it exists."""
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["ackfloor", group, *rest] if group in NEEDS_BROKER:
            sub = [word for word in rest[:1] if group in {"broker", "topics"} and word[0] != "-"]
            told = run(["ackfloor", group, *sub, "--help"], folder)
            options = [word.partition("=")[0] for word in rest if word.startswith("-")]
            assert [option for option in options if option not in told] == []
        case ["ackfloor" | "python" | "pytest", *_]:
            run(words, folder)
        case ["make", *targets]:
            names = [target for target in targets if "=" not in target]
            makefile = (REPOSITORY / "Makefile").read_text()
            assert [n for n in names if not re.search(rf"^{n}:", makefile, re.MULTILINE)] == []
        case ["pip" | "uv", *_]:
            project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
            named = re.findall(r"ackfloor\[([\w,-]+)\]", " ".join(words))
            wanted = {extra for names in named for extra in names.split(",")}
            assert wanted <= set(project["optional-dependencies"])
        case _:
            assert words[0] in NOT_OURS, f"nothing here knows how to check: {shlex.join(words)}"


def check_program(text: str, folder: Path) -> None:
    """Run a block of Python, under its own name where it has one."""
    named = re.match(r"# ([\w/]+\.py)\b", text)
    file = folder / (named[1] if named else "unnamed.py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    is_test = file.name.startswith("test_")
    run(["python", *(["-m", "pytest", "-q"] if is_test else []), str(file)], folder)


def check_readme(text: str, folder: Path) -> int:
    """Check every block in order; how many there were."""
    checked = 0
    for language, block in blocks(text):
        if language == "python":
            check_program(block, folder)
            checked += 1
        elif language in SHELLS:
            for words in commands(block):
                check_command(words, folder)
                checked += 1
    return checked


def test_the_readme_is_true(tmp_path: Path) -> None:
    """Every program in it runs and every command in it exists."""
    assert check_readme(README.read_text(), tmp_path) > 0


def test_the_readme_s_links_lead_somewhere() -> None:
    """What it links to in this repository is there."""
    links = LINK.findall(README.read_text())
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise SystemExit(1)\n```",
        "```python\n# test_it.py\ndef test_it():\n    assert 1 == 2\n```",
        "```sh\nackfloor run billing:app --no-such-option 3\n```",
        "```console\n$ ackfloor no-such-command\n```",
        "```sh\nmake no-such-target\n```",
        "```sh\npip install 'ackfloor[no-such-extra]'\n```",
        "```sh\nrm-everything\n```",
    ],
)
def test_a_false_readme_is_found(text: str, tmp_path: Path) -> None:
    """Each kind of untruth fails the check."""
    with pytest.raises(AssertionError):
        check_readme(text + "\n", tmp_path)


def test_a_program_can_use_the_one_before_it(tmp_path: Path) -> None:
    """A named block is a file that later blocks, tests and commands find."""
    text = (
        "```python\n# shop/prices.py\nprice = 3\n```\n"
        "```python\n# test_prices.py\nfrom shop.prices import price\n"
        "def test_price():\n    assert price == 3\n```\n"
        "```sh\nPRICE=1 python -c 'import shop.prices'   # a comment\nmake setup test\n```\n"
    )
    assert check_readme(text, tmp_path) == 4
