"""No thread waits for one that waits for it: locks and unbounded waits are those that
docs/DESIGN.md lists, and nothing is waited for while a lock is held.

What is looked at is the text of the packages: a wait that hides in another function, or in
somebody else's library, is not seen here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.structure.sources import REPOSITORY, modules

DESIGN = (REPOSITORY / "docs" / "DESIGN.md").read_text()
LOCKS = {"Barrier", "BoundedSemaphore", "Condition", "Lock", "RLock", "Semaphore"}
#: Calls that wait for another thread, process or machine, whatever they are called on.
WAITS = {
    "acquire", "committed", "consume", "flush", "join", "list_topics", "poll", "recv", "recv_bytes",
    "result", "sleep", "wait", "commit_transaction", "init_transactions",
}  # fmt: skip
#: Those that wait without end where they are called without an argument.
ENDLESS = {"acquire", "get", "join", "recv", "recv_bytes", "result", "wait"}
#: Not in a worker or its supervisor: the test kit, the command line and the console, batch jobs,
#: the demo.
ELSEWHERE = re.compile(
    r"ackfloor\.(testing|cli)|ackfloor_monitoring\.(spark|console)|ackfloor_handlers"
)


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Each module of a worker and its supervisor, by the name that DESIGN.md gives its file."""
    for module, file in modules().items():
        if not ELSEWHERE.match(module):
            yield short(file), ast.parse(file.read_text())


def short(file: Path) -> str:
    """`runtime/loop/loop.py`, `monitoring/ackfloor_monitoring/metrics/worker_metrics.py`."""
    parts = file.relative_to(REPOSITORY).parts
    return "/".join(parts[2:] if parts[0] == "framework" else parts)


def table(heading: str, cells: int) -> list[list[str]]:
    """The rows of the table with this first line."""
    _, _, rest = DESIGN.partition(heading)
    rows = [line.strip("| ").split(" | ") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    assert rows
    assert all(len(row) == cells for row in rows)
    return rows


def called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def made(tree: ast.AST) -> set[str]:
    """The names that locks are given."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and called(node.value or node) in LOCKS:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(target).rpartition(".")[2] for target in targets}
    return found


def constructed(tree: ast.AST) -> int:
    """How many locks are made, whether or not they get a name."""
    return sum(called(node) in LOCKS for node in ast.walk(tree))


def held(tree: ast.AST, locks: set[str]) -> Iterator[tuple[int, str]]:
    """What waits inside a `with` of one of the locks: line and text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.With) or not any(_is(item, locks) for item in node.items):
            continue
        for inner in (each for statement in node.body for each in ast.walk(statement)):
            if isinstance(inner, ast.With) and any(_is(item, locks) for item in inner.items):
                yield inner.lineno, "a lock inside a lock"
            if called(inner) in WAITS and not _of_text(inner):
                yield inner.lineno, f"{called(inner)}() under a lock"


def _is(item: ast.withitem, locks: set[str]) -> bool:
    return ast.unparse(item.context_expr).rpartition(".")[2] in locks


def _of_text(node: ast.AST) -> bool:
    """`", ".join(names)`"""
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Constant)


def endless(tree: ast.AST) -> bool:
    """Whether something is waited for without a time limit.

    Taking a lock by name (`with`) is not: `held` sees to it that its holder waits for nobody.
    """
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ENDLESS
        and not node.args
        and not node.keywords
        for node in ast.walk(tree)
    )


def test_every_lock_is_in_the_table() -> None:
    """And every row of the table is a lock."""
    listed = {tuple(re.findall(r"`([^`]+)`", row[0])) for row in table("| lock | guards |", 2)}
    there = {(name, lock) for name, tree in sources() for lock in made(tree)}
    assert listed == there
    assert sum(constructed(tree) for _, tree in sources()) == len(there), "a lock without a name"


def test_nothing_is_waited_for_while_a_lock_is_held() -> None:
    """So no lock needs a place in an order, and none can be part of a ring."""
    locks = {lock for _, tree in sources() for lock in made(tree)}
    found = [
        f"{name}:{line}: {what}" for name, tree in sources() for line, what in held(tree, locks)
    ]
    assert found == []


def test_every_wait_without_end_is_in_the_table() -> None:
    """With who waits there, and what ends it."""
    listed = {row[0].strip("`") for row in table("| where | who waits | ended by |", 3)}
    assert listed == {name for name, tree in sources() if endless(tree)}


def test_every_thread_is_in_the_table() -> None:
    """By the name it is given."""
    named = {
        keyword.value.value
        for _, tree in sources()
        for node in ast.walk(tree)
        if called(node) == "Thread" and isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant)
    }
    ours = {name for name in named if name.startswith("ackfloor:")}
    assert ours
    assert {name for name in ours if f"| `{name}` |" not in DESIGN} == set()


def test_the_search_finds_what_it_looks_for() -> None:
    """A lock in a lock, a wait under a lock, a wait without end; and not a text's join."""
    tree = ast.parse(
        "self.a = Lock()\nb: Lock = threading.RLock()\n"
        "with self.a:\n    with b:\n        pass\n    thread.join(1)\n    ', '.join(names)\n"
    )
    assert made(tree) == {"a", "b"}
    assert [line for line, _ in held(tree, {"a", "b"})] == [4, 6]
    assert not endless(tree)
    assert endless(ast.parse("future.result()"))
    assert not endless(ast.parse("future.result(3)"))
