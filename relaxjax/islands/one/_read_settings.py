"""What JAX has read of the environment, in a process that imported it long before."""

import os
from collections.abc import Mapping

_SETTING = "JAX_"
_imported_with: Mapping[str, str] | None = None


def remember_settings() -> None:
    """JAX is about to be imported, and the script to come later."""
    global _imported_with
    _imported_with = _settings()


def require_read_settings() -> None:
    """JAX reads its variables when it is imported, which a spare did long ago.

    Raises:
      ValueError: the script has set one since.
    """
    if _imported_with is None:
        return
    now = _settings()
    changed = sorted(
        name
        for name in {*now, *_imported_with}
        if now.get(name) != _imported_with.get(name)
    )
    if changed:
        raise ValueError(
            f"islands: the script sets {changed[0]}, which a spare process has no use "
            "for, as it has imported JAX already: set it where the command is called, "
            "or leave --spares out"
        )


def _settings() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.startswith(_SETTING)}
