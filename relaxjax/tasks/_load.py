"""A task from a user's own file, checked before anything is trained.

my_task.py          its function `task(seed)` returns a `relaxjax.tasks.Task`
my_task.py:other    its function `other(seed)`
"""

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from relaxjax.tasks import _chars, _digits
from relaxjax.tasks._chars import chars
from relaxjax.tasks._digits import digits
from relaxjax.tasks._own_file import spec_of
from relaxjax.tasks._require import LINE, place, require, require_takes, said
from relaxjax.tasks._task import Task

TASKS: Mapping[str, Callable[[int], Task]] = {"digits": digits, "chars": chars}


def outline(name: str) -> tuple[Any, int, float]:
    """Shapes of a task's params, its steps and rate, without drawing or data."""
    of = {"digits": _digits, "chars": _chars}[name]
    return jax.eval_shape(lambda: of.model(0)[1]), of.STEPS, of.RATE


def load(source: str) -> tuple[Callable[[int], Task], str]:
    """The function of a task file, and the SHA-256 of the file ("" for a known name).

    The file is run as a script is, so that modules beside it are found. Each task that
    the function makes is traced, without a computation, before it is returned.

    Args:
      source: `FILE.py` or `FILE.py:NAME`, where NAME is `task` if it is left out; or
        the name of a task that comes with relaxjax, "digits" or "chars".

    Raises:
      ValueError: there is no such file or function, or the file does not run; from the
        function: what it makes is not a task that can be trained. The message names the
        file, the rule and the line to add.

    Example:
      >>> import pathlib, tempfile
      >>> from relaxjax import tasks
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     file = pathlib.Path(folder, "mine.py")
      ...     _ = file.write_text("from relaxjax.tasks import digits as task")
      ...     make, sha256 = tasks.load(str(file))
      ...     print(make(0).name, len(sha256))
      digits 64
    """
    if source in TASKS:
        return TASKS[source], ""
    path, name = _parts(source)
    text = _text(path)
    function = _function(path, name, _module(path))
    require_takes(f"{path}: {name}", function, ("seed",))

    def checked(seed: int) -> Task:
        try:
            with _beside(path):
                task = function(seed)
        except (Exception, SystemExit) as error:  # whatever the user's function raises
            line = f"; write `{LINE}`" if "of_arrays()" in str(error) else ""
            raise ValueError(
                f"{place(path, error)}: {name}({seed}) raised {said(error)}{line}"
            ) from error
        require(path, name, task)
        return task

    return checked, hashlib.sha256(text).hexdigest()


def _parts(source: str) -> tuple[Path, str]:
    file, _, name = source.partition(".py:")
    path = Path(f"{file}.py" if name or source.endswith(":") else source)
    if path.suffix != ".py":
        raise ValueError(
            f"{source}: there is no such task; there is {', '.join(TASKS)}, or a file "
            "of your own, as FILE.py or FILE.py:NAME"
        )
    return path, name or "task"


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ValueError(
            f"{path}: there is no such file; `relaxjax compare --skeleton {path}` "
            "writes one to begin with"
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


_OWN: dict[Path, dict[str, ModuleType]] = {}
"""The modules that task files have imported from beside them, by their folder."""


@contextmanager
def _beside(path: Path, *, anew: bool = False) -> Iterator[None]:
    """Modules in the file's folder can be imported; `anew`, as they stand now.

    Those of other task files, which may have the same names, are out of the way.
    """
    folder = path.resolve().parent
    for name, module in [pair for some in _OWN.values() for pair in some.items()]:
        if sys.modules.get(name) is module:
            del sys.modules[name]
    own = {} if anew else _OWN.get(folder, {})
    before = {*sys.modules}
    sys.modules.update(own)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        names = [name for name in list(sys.modules) if _is_own(name, folder, before)]
        _OWN[folder] = {name: sys.modules[name] for name in names}


def _is_own(name: str, folder: Path, before: set[str]) -> bool:
    """Whether a module was imported from a file or a package in the folder itself."""
    top = name.partition(".")[0]
    file = getattr(sys.modules[name], "__file__", None)
    if top in before or not file:
        return False
    place = Path(file).resolve()
    return place == folder / f"{top}.py" or folder / top in place.parents


def _module(path: Path) -> ModuleType:
    spec = spec_of(f"_task_{path.stem}", path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up by name
    try:
        with _beside(path, anew=True):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        file = error.filename or path
        raise ValueError(f"{file}:{error.lineno} is not Python: {error.msg}") from error
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise ValueError(
            f"{place(path, error)} cannot be run: it raised {said(error)}"
        ) from error
    return module


def _function(path: Path, name: str, module: ModuleType) -> Callable[[int], Any]:
    found = getattr(module, name, None)
    if callable(found):
        return found
    own = [
        key
        for key, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    kind = "" if found is None else f", but a value of type {type(found).__name__}"
    raise ValueError(
        f"{path} has no function {name!r}{kind} (it has {', '.join(own) or 'none'}): "
        f"add `def {name}(seed):`, or name another one as {path}:NAME"
    )
