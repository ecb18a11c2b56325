"""Doors of packages: a name is imported when it is first asked for.

So that `relaxjax.all_reduce` runs the files that it needs and not the whole package. A
door states its names once, by the module that they live in; `scripts/stubs.py` writes
the `.pyi` beside it, which type checkers read, and a test compares the two.
"""

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def door(
    package: str,
    names: Mapping[str, str],
    shared: Mapping[str, str] | None = None,
    rooms: str = "",
    deprecated: Mapping[str, str] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
      package: its `__name__`.
      names: public names, separated by blanks, by their module inside the package, or
        by its full name elsewhere; a public subpackage stands under `""`.
      shared: likewise names for the other rooms of relaxjax, which are not public.
      rooms: subpackages, separated by blanks, whose public names are public here too.
      deprecated: new names by old ones, which still work and warn once.

    Example:
      >>> from relaxjax._core._lazy import door
      >>> get, _, public = door("relaxjax", {"workers._mesh": "emulate"})
      >>> public, get("emulate").__name__
      (['emulate'], 'emulate')
    """
    own = _homes(names)
    for room in rooms.split():
        inside = importlib.import_module(f"{package}.{room}").__all__
        own |= dict.fromkeys(inside, room)
    homes = own | _homes(shared or {})
    public = sorted(own)

    def __getattr__(name: str) -> Any:
        """The subpackage or what is in a module, by its name."""
        if renamed := (deprecated or {}).get(name):
            message = f"{package}.{name} is now {package}.{renamed}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            value = getattr(sys.modules[package], renamed)
            setattr(sys.modules[package], name, value)
            return value
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home := homes[name]:
            elsewhere = home.startswith("relaxjax.")
            module = home if elsewhere else f"{package}.{home}"
            value = getattr(importlib.import_module(module), name)
        else:
            value = importlib.import_module(f"{package}.{name}")
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, public.copy, public


def _homes(names: Mapping[str, str]) -> dict[str, str]:
    return {name: home for home, several in names.items() for name in several.split()}
