"""From `MODULE:APP` to the app: what is missing is named exactly, in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ackfloor import App, StartError
from ackfloor.loading import load_app

GOOD = """
from ackfloor import App

app = App("billing")
later = App("later")


class shop:
    orders = app


def make():
    return app


def fail():
    return {}["no such key"]


number = 7
"""

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules into the working directory; they are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def write(**modules: str) -> None:
        for name, text in modules.items():
            file = tmp_path / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def refusal(path: str, **options: bool) -> str:
    """What is said when the app can't be had: one line."""
    with pytest.raises(StartError) as refused:
        load_app(path, **options)
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("path", ["loaded:app", "loaded:shop.orders", "package.loaded:app"])
def test_an_app_is_found_in_the_working_directory(write: Write, path: str) -> None:
    """As a name of a module or a package, by an attribute or a dotted one."""
    write(loaded=GOOD, package__loaded=GOOD)
    assert isinstance(load_app(path), App)


def test_a_factory_is_called_only_when_asked_to(write: Write) -> None:
    """And the other way round, the error says which flag is missing."""
    write(loaded=GOOD)
    assert load_app("loaded:make", factory=True).group == "billing"
    assert "--factory" in refusal("loaded:make")
    assert "--factory needs a function" in refusal("loaded:number", factory=True)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("nowhere:app", "no module named 'nowhere'"),
        ("package.nowhere:app", "no module named 'package.nowhere'"),
        ("nowhere.at.all:app", "no module named 'nowhere'"),
        ("loaded:ap", "module 'loaded' has no attribute 'ap'; its apps are: app, later"),
        ("loaded:shop.bills", "has no attribute 'bills'"),
        ("loaded:number", "loaded:number is of type int, not an ackfloor App"),
        ("imports:app", "imports imports 'no_such_library', which is not installed"),
        ("loaded", "is not MODULE:APP"),
        (":app", "is not MODULE:APP"),
        ("loaded:", "is not MODULE:APP"),
        ("..loaded:app", "importing ..loaded failed"),
    ],
)
def test_what_is_missing_is_named(write: Write, path: str, named: str) -> None:
    """The very module or attribute, not the one that asked for it."""
    write(
        loaded=GOOD, imports="import no_such_library\napp = None", package__other="", package__a=""
    )
    assert named in refusal(path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("x = 1\ny = 1 / 0\n", "loaded.py:2: ZeroDivisionError: division by zero"),
        ("x = 1\n\ndef f(:\n", "loaded.py:3: SyntaxError"),
        ("import sys\nsys.exit('bye')\n", "loaded.py:2: SystemExit: bye"),
        ("raise GeneratorExit('bye')\n", "loaded.py:1: GeneratorExit: bye"),
        ("class Own(BaseException): ...\nraise Own\n", "loaded.py:2: Own: "),
    ],
    ids=["error", "syntax", "exit", "generator", "own"],
)
def test_a_module_that_fails_says_where(write: Write, text: str, named: str) -> None:
    """Also one that ends the process while it is imported: that must not look like success."""
    write(loaded=text)
    assert named in refusal("loaded:app")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("import json\n\nx = json.loads('{')\n", "loaded.py:3: JSONDecodeError: "),
        (
            "from pydantic import *\nclass Shop(BaseModel):\n    number: int\nShop(number='x')\n",
            "loaded.py:4: ValidationError: 1 validation error for Shop number Input should be",
        ),
        ("from ackfloor import App\n\napp = App()\n", "loaded.py:3: TypeError: "),
        ("import ast\n\nast.literal_eval('1 +')\n", "loaded.py:3: SyntaxError: "),
        ("import helper\nhelper.parse('{')\n", "helper.py:5: JSONDecodeError: "),
        ("import broken\n", "broken.py:2: SyntaxError: "),
        ("import lib\nlib.fail()\n", "loaded.py:2: ZeroDivisionError: "),
        ("import broken_lib\n", "loaded.py:1: SyntaxError: "),
    ],
    ids=["stdlib", "pydantic", "ackfloor", "eval", "helper", "broken", "library", "broken_library"],
)
def test_it_is_the_line_of_the_user_s_own_code(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, named: str
) -> None:
    """Where the standard library, an installed package or this one has raised: who called it."""
    write(
        loaded=text,
        helper="import json\n\n\ndef parse(text):\n    return json.loads(text)\n",
        broken="x = 1\ndef f(:\n",
    )
    # A virtual environment below the working directory, as most projects have it.
    libraries = tmp_path / ".venv" / "lib" / "site-packages"
    libraries.mkdir(parents=True)
    (libraries / "lib.py").write_text("def fail():\n    return 1 / 0\n")
    (libraries / "broken_lib.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(libraries)
    said = refusal("loaded:app")
    assert f"importing loaded failed at {tmp_path}/{named}" in said


def test_a_module_with_the_name_of_a_standard_one_is_the_user_s(
    write: Write, tmp_path: Path
) -> None:
    """It comes before that one, from the working directory, and is no library for its name."""
    write(turtle="import json\n\njson.loads('{')\n")
    assert f"at {tmp_path}/turtle.py:3: JSONDecodeError" in refusal("turtle:app")


def test_it_is_so_for_an_app_that_is_installed(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an image: what lies in `site-packages` under the app's own name is its own code."""
    libraries = tmp_path / "lib" / "site-packages"
    (libraries / "shop").mkdir(parents=True)
    (libraries / "shop" / "__init__.py").touch()
    (libraries / "shop" / "orders.py").write_text("import shop.prices\n")
    (libraries / "shop" / "prices.py").write_text("import json\njson.loads('{')\n")
    monkeypatch.syspath_prepend(libraries)
    assert f"at {libraries}/shop/prices.py:2: JSONDecodeError" in refusal("shop.orders:app")


def test_a_factory_that_fails_says_where(write: Write) -> None:
    """File and line of what it ran into."""
    write(loaded=GOOD)
    said = refusal("loaded:fail", factory=True)
    assert "loaded:fail() failed at" in said
    assert "loaded.py:17: KeyError: 'no such key'" in said


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("App('billing department')", "group='billing department'"),
        ("RetryPolicy(initial_delay='0s', max_redeliveries=None)", "initial_delay"),
        ("app.handler('orders', consume_timeout=30)(f)", "consume_timeout=30"),
        ("app.handler('orders', consume_timeout='30')(f)", "consume_timeout='30'"),
        ("app.handler('orders', ack='manual', consume_timeout=None)(f)", "consume_timeout"),
        ("app.handler('orders')(f); app.handler('orders')(g)", "one handler per topic"),
        ("app.handler('orders')(f); app.handler('calls')(f)", "name='f'"),
    ],
)
def test_a_refused_setting_in_the_module_keeps_field_value_and_fix(
    write: Write, code: str, named: str
) -> None:
    """In the words of the rule that refuses it, and without the name of an exception class."""
    write(
        loaded="from ackfloor import App, RetryPolicy\napp = App('g')\n"
        "async def f(value: bytes) -> None: ...\nasync def g(value: bytes) -> None: ...\n" + code
    )
    said = refusal("loaded:app")
    assert said.startswith("loaded: ")
    assert named in said
    assert "Error" not in said


@pytest.mark.parametrize("factory", [False, True], ids=["module", "factory"])
def test_a_refused_setting_is_named_with_its_line(
    write: Write, tmp_path: Path, *, factory: bool
) -> None:
    """A retry policy does not know whose it is: the line says it."""
    write(
        loaded="from ackfloor import App, RetryPolicy\ndef make():\n    app = App('g')\n"
        "    app.handler('orders', retry=RetryPolicy(delays=['5']))\n    return app\n"
        + ("" if factory else "app = make()\n")
    )
    said = refusal("loaded:make" if factory else "loaded:app", factory=factory)
    assert said.endswith(
        f"retry.delays='5': a bare number has no unit; write 5s (at {tmp_path}/loaded.py:4)"
    )
