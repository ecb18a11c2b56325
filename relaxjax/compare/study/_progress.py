"""Who is told what a study runs: one line of a notebook, or nobody."""

import sys
from collections.abc import Callable
from typing import Any

Progress = Callable[[int, int, str], None]
"""Called before each run with the numbers of finished and of all runs, and its name."""


def shown_here() -> Progress:
    """A line that a cell of a notebook shows and overwrites; elsewhere, nothing."""
    module: Any = sys.modules.get("IPython")
    shell = module and module.get_ipython()
    if not hasattr(shell, "kernel"):  # of a terminal, or none
        return lambda done, of, what: None
    handle = None

    def show(done: int, of: int, what: str) -> None:
        nonlocal handle
        line = {"text/plain": f"run {done + 1} of {of}: {what}"}
        if handle is None:
            handle = module.display.display(line, raw=True, display_id=True)
        else:
            handle.update(line, raw=True)

    return show
