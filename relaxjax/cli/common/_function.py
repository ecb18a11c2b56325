"""A function of a user's file, with arguments to trace it by."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from os.path import isfile, lexists
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from relaxjax import hosts
from relaxjax._core.foreign._folders import local_path
from relaxjax.tasks import spec_of


def import_file(path: Path) -> ModuleType:
    """Imports a user's file as if it were run: modules beside it are found.

    Raises:
      typer.BadParameter: it is not a Python file, or raises.
    """
    if path.suffix != ".py":
        raise typer.BadParameter(f"{path} is not a Python file")
    spec = spec_of(path.stem, path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    # Dataclasses look their module up by name.
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        if before is None:
            del sys.modules[path.stem]
        else:
            sys.modules[path.stem] = before
        raise typer.BadParameter(
            f"{path} could not be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(folder)
    return module


def write_new(path: Path, text: str) -> None:
    """Writes a file that is not there yet.

    Raises:
      ValueError: something is there, or it cannot be written.
    """
    path = local_path("the file", "path", path)
    if lexists(path):
        raise ValueError(f"{path} exists already; name another file")
    try:
        with hosts.writing(path):
            path.write_text(text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"cannot write {path}: {why}") from error


def load_function(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function that FILE.py:FUNCTION names, and its example arguments.

    Raises:
      typer.BadParameter: no such file or function, a file or arguments that raise.
    """
    file, colon, name = target.rpartition(":")
    if not colon or not name:
        raise typer.BadParameter(f"expected FILE.py:FUNCTION, got {target!r}")
    path = Path(file)
    if not isfile(path):
        raise typer.BadParameter(f"no such file: {file}")
    module = import_file(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise typer.BadParameter(f"{file} defines no function {name!r}")
    return function, _example_args(module, function, name)


def _example_args(
    module: ModuleType, function: Callable[..., Any], name: str
) -> tuple[Any, ...]:
    parameters = inspect.signature(function).parameters.values()
    defaults = [p.default for p in parameters if p.kind is not p.KEYWORD_ONLY]
    make = getattr(module, f"{name}_args", None)
    if make is None and defaults and inspect.Parameter.empty not in defaults:
        return tuple(defaults)
    make = make or getattr(module, "example_args", None)
    if make is None:
        raise typer.BadParameter(
            f"no example arguments for {name}: define {name}_args() or example_args() "
            "that returns (params, ...), or give every parameter a default"
        )
    try:
        args = make()
    except (Exception, SystemExit) as error:  # whatever the user's function raises
        raise typer.BadParameter(
            f"{make.__name__}() failed: {type(error).__name__}: {error}"
        ) from error
    return args if isinstance(args, tuple) else (args,)
