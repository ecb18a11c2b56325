"""What one process of several cannot do, all of them say.

A process that fails alone leaves the others waiting for it, in what they do together
next. Each tells the others how it has fared before any goes on.

Cost: with several processes, a small all-gather.
"""

from collections.abc import Callable
from typing import TypeVar

from relaxjax._core.foreign._together import texts_of_all

_T = TypeVar("_T")


def together(caller: str, processes: int, act: Callable[[], _T]) -> _T:
    """`act()`, which is the processes' own; all raise where it fails on one of them.

    Raises:
      Exception: what this process's own call has raised.
      ValueError: this one's call has not, and another's has.
    """
    if processes == 1:
        return act()
    try:
        done = act()
    except Exception as error:
        texts_of_all(caller, f"{type(error).__name__}: {error}")
        raise
    for process, text in enumerate(texts_of_all(caller, "")):
        if text:
            raise ValueError(f"{caller}: process {process} cannot: {text}")
    return done
