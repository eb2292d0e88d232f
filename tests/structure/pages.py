"""Pages: what stands in the fenced blocks of a Markdown page is run, or looked up, or typed.

All blocks of a page are taken in order, in one empty folder.

* `python` whose first line is a comment with a file name (`# billing.py`): kept under that name
  for those after it, and run; a `test_*.py` is run by pytest.
* `python` without a name: the unnamed blocks of a page are one program, run at its end.
* `python needs-broker`: kept under its name and type-checked; nothing here starts a broker. The
  first steps are followed on a real one by tests/e2e/test_first_steps.py.
* `toml`: kept as `ackfloor.toml`, and its settings must exist and take their values.
* shell: what needs no broker is run; of the rest the sub-command and every option must exist.
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
from pathlib import Path

from tests.structure.sources import REPOSITORY

NEEDS_A_BROKER = "needs-broker"
SHELLS = {"bash", "console", "sh", "shell"}
# They start a broker, a run or Spark, or need one; the tests of the command line run them.
ON_A_BROKER = {
    *("acks", "broker", "demo", "dlq", "doctor", "inflight", "lag", "retry", "run"),
    *("spark", "topics"),
}
# Of these, the ones that have commands below them.
GROUPS = {"broker", "dlq", "retry", "spark", "topics"}
# Commands of the shell itself, and of tools that every machine has.
NOT_OURS = {"cd", "curl", "export", "git", "kill"}
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
_NAME = re.compile(r"# ([\w/]+\.py)\b")


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
    """A page that is being checked in a folder of its own."""

    folder: Path
    checked: int = 0
    program: list[str] = field(default_factory=list)
    typed: list[str] = field(default_factory=list)


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
            (folder / "ackfloor.toml").write_text(block.text)
            run(["ackfloor", "config", "show"], folder)
            page.checked += 1
        elif block.language in SHELLS:
            for words in commands(block.text):
                _check_command(words, page)
    if page.program:
        (folder / "page.py").write_text("\n".join(page.program))
        run(["python", "page.py"], folder)
    if page.typed:
        cache = f"--cache-dir={REPOSITORY / '.mypy_cache' / 'pages'}"
        # The Kafka client's package names what it imports without exporting it.
        run(["python", "-m", "mypy", "--strict", "--implicit-reexport", cache, *page.typed], folder)
    return page.checked


def broken_links(page: Path) -> list[str]:
    """The links of a page that lead to no file, or to no heading of one."""
    return [
        f"{link}#{heading}" if heading else link
        for link, heading in _LINK.findall(page.read_text())
        if not _leads_somewhere(page, link, heading)
    ]


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block as words; with prompts in it, the other lines are output."""
    lines = text.replace("\\\n", " ").splitlines()
    if any(line.startswith("$ ") for line in lines):
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run(words: Sequence[str], folder: Path, **variables: str) -> str:
    """What a command prints in `folder`; its failure fails the test."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """The environment of a page's commands: this interpreter's, and the page's own files."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ACKFLOOR_")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    env |= {"PYTHONPATH": str(folder), "COLUMNS": "200", "NO_COLOR": "1"}
    return env | variables


def _check_program(block: Block, page: Page) -> None:
    page.checked += 1
    if block.file is None:
        page.program.append(block.text)
        return
    file = page.folder / block.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.text)
    if NEEDS_A_BROKER in block.notes:
        page.typed.append(block.file)
        return
    is_test = file.name.startswith("test_")
    run(["python", *(["-m", "pytest", "-q"] if is_test else []), block.file], page.folder)


def _check_command(words: list[str], page: Page) -> None:
    """Run a command of a shell block, or look that all of it exists."""
    page.checked += 1
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["ackfloor", group, *rest] if group in ON_A_BROKER:
            sub = [word for word in rest[:1] if group in GROUPS and word[0] != "-"]
            _check_options([group, *sub], rest, page)
        case ["ackfloor", "config", "set", *rest]:
            _check_options(["config", "set"], rest, page)
        case ["python", file, *_] if file in page.typed:
            pass
        case ["ackfloor" | "python" | "pytest", *_]:
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
            assert words[0] in NOT_OURS, f"nothing here knows how to check: {shlex.join(words)}"


def _check_options(command: list[str], rest: list[str], page: Page) -> None:
    told = run(["ackfloor", *command, "--help"], page.folder)
    options = [word.partition("=")[0] for word in rest if word.startswith("-")]
    assert [option for option in options if option not in told] == []


def _leads_somewhere(page: Path, link: str, heading: str) -> bool:
    target = page.parent / link if link else page
    if not target.exists():
        return False
    return not heading or heading in headings(target.read_text())


def headings(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", re.sub(_BLOCK, "", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
