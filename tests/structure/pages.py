"""Pages: what stands in the fenced blocks of a Markdown page is run, or looked up, or typed.

All blocks of a page are taken in order, in one empty folder. To start Python and to import us
takes longer than most programs here run, so those that follow each other share a process.

* `python` whose first line is a comment with a file name (`# billing.py`): kept under that name
  for those after it, and run; a `test_*.py` is run by pytest.
* `python` without a name: the unnamed blocks of a page are one program, run at its end.
* `python needs-broker`: kept under its name and type-checked; nothing here starts a broker. The
  first steps are followed on a real one by tests/e2e/test_first_steps.py.
* `toml`: kept as `ackfloor.toml`, and its settings must exist and take their values.
* shell: what needs no broker is run; of the rest the sub-command and every option must exist.

In sentences, what stands between backticks is looked up: commands with their options, files, and
the modules that users copy or import.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fcntl import LOCK_EX, flock
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer

from ackfloor.cli.main import cli
from tests.plugin_arguments import plugin_arguments
from tests.structure.sources import REPOSITORY

NEEDS_A_BROKER = "needs-broker"
SHELLS = {"bash", "console", "sh", "shell"}
# They start a broker, a run or Spark, or need one; the tests of the command line run them.
ON_A_BROKER = {
    *("acks", "actions", "breaker", "broker", "console", "demo", "dlq", "doctor", "handlers"),
    *("inflight", "lag", "lanes", "retry", "run", "spark", "status", "topics"),
}
# Runs each file as `python file` would; one that leaves with `sys.exit` would hide the others.
_RUN_EACH = """
import runpy, sys
for file in sys.argv[1:]:
    runpy.run_path(file, run_name="__main__")
print("all were run")
"""
# The Kafka client's package names what it imports without exporting it.
_TYPES = "[mypy]\n[mypy-confluent_kafka.*]\nimplicit_reexport = True\n"
# Commands of the shell itself, and of tools that every machine has.
NOT_OURS = {
    *("cd", "curl", "docker", "export", "git", "install", "journalctl", "kill", "kubectl"),
    *("pip", "python3", "systemctl", "useradd"),
}
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_NAME = re.compile(r"# ([\w/]+\.py)\b")
_SPAN = re.compile(r"`([^`]+)`")
# What a sentence leaves open: `ackfloor dlq (ls|show)`, `ackfloor topics ...`.
_OPEN = re.compile(r"[|{}()\[\]]|\.\.\.|…")
_FILE = re.compile(r"\w[\w.-]*(?:/[\w.-]+)+\.(?:json|md|py|sh|toml|ya?ml)")
# A name with a capital is that of a class in one, and is left alone.
_MODULE = re.compile(r"\backfloor_(?:handlers|monitoring)(?:\.[a-z_]+)*(?![\w.])")
# Where a page's files are, as sentences shorten them.
_ROOTS = [
    REPOSITORY / each
    for each in ("", "docs", "framework/ackfloor", "monitoring/ackfloor_monitoring")
]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, what else its first line says, and its text."""

    language: str
    notes: frozenset[str]
    text: str

    @property
    def file(self) -> str | None:
        """The name that a program says it has."""
        named = _NAME.match(self.text)
        return named[1] if named else None


@dataclass(slots=True)
class Page:
    """A page that is being checked in a folder of its own.

    Attributes:
        checked: how many blocks and commands were looked at.
        program: the unnamed programs so far.
        typed: the files that are only type-checked.
        waiting: the files that are there and were not run yet.
    """

    folder: Path
    checked: int = 0
    program: list[str] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def catch_up(self) -> None:
        """Run what waits."""
        tests = [file for file in self.waiting if Path(file).name.startswith("test_")]
        programs = [file for file in self.waiting if file not in tests]
        self.waiting = []
        if programs:
            told = run(["python", "-c", _RUN_EACH, *programs], self.folder)
            assert told.endswith("all were run\n"), told
        if tests:
            quiet = ("-q", "-p", "no:cacheprovider", *plugin_arguments())
            run(["python", "-m", "pytest", *quiet, *tests], self.folder)


def blocks(text: str) -> Iterator[Block]:
    """Each fenced block of a page."""
    for match in _BLOCK.finditer(text):
        yield Block(match[1], frozenset(match[2].split()), match[3])


def check_page(text: str, folder: Path) -> int:
    """Check every block in order; how many there were."""
    page = Page(folder)
    for block in blocks(text):
        if block.language == "python":
            _check_program(block, page)
        elif block.language == "toml":
            page.catch_up()
            (folder / "ackfloor.toml").write_text(block.text)
            run(["ackfloor", "config", "show"], folder)
            page.checked += 1
        elif block.language in SHELLS:
            for words in commands(block.text):
                _check_command(words, page)
    if page.program:
        (folder / "page.py").write_text("\n".join(page.program))
        page.waiting.append("page.py")
    page.catch_up()
    if page.typed:
        mypy(folder, *page.typed)
    return page.checked


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    return [
        f"{link}#{heading}" if heading else link
        for link, heading in _LINK.findall(page.read_text())
        if not _leads_somewhere(page, link, heading)
    ]


def unknown_commands(text: str) -> list[str]:
    """The commands in sentences that don't exist, or have an option that does not."""
    return [each for each in _spans(text) if each.startswith("ackfloor ") and not _is_ours(each)]


def missing_files(text: str) -> list[str]:
    """The files with a folder in sentences that the repository does not have."""
    named = [each for each in _spans(text) if _FILE.fullmatch(each)]
    return [each for each in named if not any((root / each).exists() for root in _ROOTS)]


def missing_modules(text: str) -> list[str]:
    """The modules of our handlers and monitoring in sentences that can't be found."""
    named = [found for each in _spans(text) for found in _MODULE.findall(each)]
    return [each for each in named if _found(each) is None]


def _found(module: str) -> ModuleSpec | None:
    try:
        return find_spec(module)
    except ModuleNotFoundError:  # its package
        return None


def _spans(text: str) -> Iterator[str]:
    """What stands between backticks in sentences, on one line each."""
    for match in _SPAN.finditer(_BLOCK.sub("", text)):
        yield " ".join(match[1].split())


def _is_ours(command: str) -> bool:
    if _OPEN.search(command):
        return True
    try:
        check_options(shlex.split(command)[1:], groups=True)
    except AssertionError:
        return False
    return True


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block as words; with prompts in it, the other lines are output."""
    lines = text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def mypy(folder: Path, *files: str) -> None:
    """Check files in `folder` strictly, with the cache of all pages.

    It breaks where two write to one cache at a time: the tests of several processes take turns.
    What other options have checked would be checked again, so all have the same.
    """
    cache = REPOSITORY / ".mypy_cache" / "pages"
    cache.mkdir(parents=True, exist_ok=True)
    options = ["--strict", "--config-file=mypy.ini", f"--cache-dir={cache}"]
    (folder / "mypy.ini").write_text(_TYPES)
    with (cache / "turn").open("w") as turn:
        flock(turn, LOCK_EX)
        run(["python", "-m", "mypy", *options, *files], folder)


def run(words: Sequence[str], folder: Path, **variables: str) -> str:
    """What a command prints in `folder`; its failure fails the test."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a page's commands: this interpreter's, and the page's own files.

    Coverage is not measured in them: what runs for a page is tested elsewhere.
    """
    left_out = ("ACKFLOOR_", "COVERAGE_PROCESS_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    env |= {"PYTHONPATH": str(folder), "COLUMNS": "200", "NO_COLOR": "1"}
    return env | variables


def _check_program(block: Block, page: Page) -> None:
    page.checked += 1
    if block.file is None:
        page.program.append(block.text)
        return
    file = page.folder / block.file
    if file.exists():
        page.catch_up()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.text)
    (page.typed if NEEDS_A_BROKER in block.notes else page.waiting).append(block.file)


def _check_command(words: list[str], page: Page) -> None:
    """Run a command of a shell block, or look that all of it exists."""
    page.checked += 1
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["ackfloor", group, *_] if group in ON_A_BROKER:
            check_options(words[1:])
        case ["ackfloor", "config", "set", *_]:
            check_options(words[1:])
        case ["python", file, *_] if file in page.typed:
            pass
        case ["python", "-m", "ackfloor_handlers.incident", *_]:
            pass  # on a broker, by tests/e2e/test_incident.py
        case ["ackfloor" | "python" | "pytest", *_]:
            page.catch_up()
            run(words, page.folder)
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
            assert Path(words[0]).name in NOT_OURS, (
                f"nothing here knows how to check: {shlex.join(words)}"
            )


@cache
def _command_line() -> Any:
    return typer.main.get_command(cli)


def check_options(words: list[str], *, groups: bool = False) -> None:
    """The command exists, and so does each of its options; with `groups` a group will do."""
    command, left = _command_line(), words
    while inner := getattr(command, "commands", None):
        if groups and (not left or left[0].startswith("-")):
            break
        assert left, f"ackfloor {shlex.join(words)}: a command below it is missing"
        assert left[0] in inner, f"ackfloor {shlex.join(words)}: no command {left[0]!r}"
        command, left = inner[left[0]], left[1:]
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    known |= {"-h", "--help"}
    options = [word.partition("=")[0] for word in left if word.startswith("-")]
    assert [option for option in options if option not in known] == []


def _leads_somewhere(page: Path, link: str, heading: str) -> bool:
    target = page.parent / link if link else page
    if not target.exists():
        return False
    return not heading or heading in headings(target.read_text())


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(_BLOCK, "", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
