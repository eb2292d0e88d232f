"""Loading: imports the App named by `module:attribute`; errors name exactly what is missing."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ackfloor.errors import AckfloorError, SettingError, StartError

if TYPE_CHECKING:
    from ackfloor.app import App


class StopRequested(BaseException):
    """A stop was requested before any worker was started; not an Exception, so that code being
    imported does not catch it."""


#: The modules that are being imported for a command, the innermost last.
_loading: list[str] = []


def is_loading() -> bool:
    """Whether the user's code is being imported for a command, or a worker, at the moment."""
    return bool(_loading)


def load_app(path: str, *, factory: bool = False) -> App:
    """Import the app a command names.

    The working directory is importable, as with `python -m`.

    Args:
        path: `package.module:attribute`; the attribute may be dotted.
        factory: whether the attribute is a function that returns the app.

    Raises:
        StartError: it can't be loaded; the message names the missing module or attribute.
    """
    from ackfloor.app import App

    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise StartError(f"{path!r} is not MODULE:APP; write for example shop.orders:app")
    found = _here(module_name, attribute)
    if factory:
        if not callable(found):
            raise StartError(f"{path}: --factory needs a function that returns an App")
        found = _made(found, path)
    elif not isinstance(found, App) and callable(found):
        raise StartError(f"{path} is a function: add --factory if it returns the App")
    if not isinstance(found, App):
        raise StartError(f"{path} is of type {type(found).__name__}, not an ackfloor App")
    return found


def load_function(path: str, option: str) -> Callable[..., object]:
    """Import the user's function that an option names.

    The working directory is importable, as for an app.

    Args:
        path: `package.module:function`.
        option: for messages, such as `--edit-with`.

    Raises:
        StartError: it can't be loaded.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise StartError(f"{option}={path!r}: not MODULE:FUNCTION; write for example fixes:repair")
    found = _here(module_name, attribute)
    if not callable(found):
        raise StartError(f"{option}={path!r}: of type {type(found).__name__}, not a function")
    return found


def _refused(name: str, exc: AckfloorError | SettingError) -> StartError:
    """What the app's code is refused for, with its line: a `RetryPolicy` knows no handler."""
    frame = _users_frame(exc)
    place = f" (at {frame[0]}:{frame[1]})" if frame else ""
    return StartError(f"{name}: {exc}{place}")


def error_with_place(exc: BaseException) -> str:
    """An exception of the user's code in one line, with the line of their code that led to it."""
    frame = _users_frame(exc)
    if isinstance(exc, SyntaxError) and (frame is None or not _is_library(exc.filename or "<>")):
        return f"at {exc.filename}:{exc.lineno}: {type(exc).__name__}: {exc.msg}"
    if frame is None:
        last = traceback.extract_tb(exc.__traceback__)[-1]
        frame = (last.filename, last.lineno or 0)
    text = " ".join(line.strip() for line in str(exc).splitlines())
    return f"at {frame[0]}:{frame[1]}: {type(exc).__name__}: {text}"


def _users_frame(exc: BaseException) -> tuple[str, int] | None:
    """File and line of the innermost frame that is the user's code; None where none is.

    That is what belongs to no library, and what bears the app's own name: an app may be installed.
    """
    frames = [
        (str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(exc.__traceback__)
    ]
    ours = __name__.partition(".")[0]
    theirs = [each for each in frames if each[0] != ours and not _is_standard(each[1])]
    own = theirs[0][0] if theirs else None
    found = [
        (file, line) for package, file, line in theirs if package == own or not _is_library(file)
    ]
    return found[-1] if found else None


def _is_library(file: str) -> bool:
    """Whether a file is of the standard library, of an installed package, or no file at all."""
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return bool(installed) or _is_standard(file)


def _is_standard(file: str) -> bool:
    """Whether a file is of the standard library, or no file at all; installed packages are not.

    By its folder: a module of the user's may have the name of one of the standard library.
    """
    folders = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    folders.add(str(Path(os.__file__).parent))
    parents = [str(parent) for parent in Path(file).parents]
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return file.startswith("<") or (not installed and not folders.isdisjoint(parents))


def load_command(path: str) -> Callable[..., int]:
    """Import the code of a command that is in another package of the distribution.

    Args:
        path: `package.module:function`; the function returns the exit code.
    """
    module_name, _, attribute = path.partition(":")
    found = _attribute(_module(module_name), module_name, attribute)
    if not callable(found):
        raise StartError(f"{path} is of type {type(found).__name__}, not a function")
    return found


def _here(module_name: str, attribute: str) -> object:
    """An attribute of a module, which may be in the working directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return _attribute(_module(module_name), module_name, attribute)


def _module(name: str) -> object:
    _loading.append(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        missing = exc.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise StartError(f"no module named {missing!r} (asked for {name!r})") from exc
        raise StartError(f"{name} imports {missing!r}, which is not installed") from exc
    except (AckfloorError, SettingError) as exc:
        raise _refused(name, exc) from exc
    except (KeyboardInterrupt, StopRequested):
        raise
    except BaseException as exc:
        raise StartError(f"importing {name} failed {error_with_place(exc)}") from exc
    finally:
        _loading.pop()


def _made(factory: Callable[[], object], path: str) -> object:
    try:
        return factory()
    except (AckfloorError, SettingError) as exc:
        raise _refused(path, exc) from exc
    except (KeyboardInterrupt, StopRequested):
        raise
    except BaseException as exc:
        raise StartError(f"{path}() failed {error_with_place(exc)}") from exc


def _attribute(module: object, module_name: str, path: str) -> object:
    found = module
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            from ackfloor.app import App

            apps = [key for key, value in vars(module).items() if isinstance(value, App)]
            hint = f"; its apps are: {', '.join(sorted(apps))}" if apps else ""
            raise StartError(f"module {module_name!r} has no attribute {name!r}{hint}") from None
    return found
