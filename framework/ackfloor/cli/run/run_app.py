"""`App.run()`: `ackfloor run` for an app whose file was started as a program.

Its workers are processes of their own, which import the app. So it has to be known by which name:
that of the program where it has one, else of a module that has the app.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

from ackfloor.app import App
from ackfloor.cli.main import fail, main
from ackfloor.errors import StartError
from ackfloor.loading import is_loading


def run_app(app: App, arguments: list[str]) -> None:
    """Run an app's workers until they are asked to stop, and exit.

    Args:
        app: what to run.
        arguments: those of `ackfloor run` behind its app.

    Raises:
        StartError: it was called by the import of a module of the app.
        SystemExit: the run has ended, or can't be started; with its exit code.
    """
    if is_loading():
        raise StartError(
            "app.run() was called while its module was imported, as each worker does: "
            "put it under `if __name__ == '__main__':`"
        )
    try:
        path = _import_path(app)
    except StartError as exc:
        fail(exc, exc.exit_code)
    main(["run", path, *arguments])


def _import_path(app: App) -> str:
    """Where workers find an app, as `module:attribute`."""
    program = sys.modules["__main__"]
    name = _importable(program)
    attribute = _attribute(program, app)
    if name and attribute:
        # As it is: a second import would register its handlers again.
        sys.modules.setdefault(name, program)
        return f"{name}:{attribute}"
    for name, module in sorted(sys.modules.items()):
        if module is not program and (attribute := _attribute(module, app)):
            return f"{name}:{attribute}"
    raise StartError(
        "app.run() finds no module that has the app: make it a variable of a module, in a file "
        "whose name Python can import, so that worker processes find it as well"
    )


def _attribute(module: ModuleType, app: App) -> str | None:
    """The name of an app in a module."""
    variables = getattr(module, "__dict__", {})
    return next((key for key, value in list(variables.items()) if value is app), None)


def _importable(program: ModuleType) -> str | None:
    """The name by which workers can import the program; None where it has none."""
    if program.__spec__ is not None:
        # `python -m name`; workers start in the same folder.
        return program.__spec__.name
    file = Path(getattr(program, "__file__", None) or "")
    if file.suffix != ".py" or not file.stem.isidentifier():
        return None
    # `python file.py`: its folder is on the path here, and has to be there as well.
    folders = [str(file.resolve().parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    return file.stem
