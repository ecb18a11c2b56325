"""What a method has to say of how it was put together, where somebody asks for it.

A choice that is allowed, and rarely meant, is no error. The method remarks on it while
it is traced, and `relaxjax.init` and `relaxjax.explain` ask: they warn of it once.

Cost: nothing at run time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_SAID: ContextVar[list[str] | None] = ContextVar("remarks", default=None)


def remark(text: str) -> None:
    """Says something, once, if somebody asks."""
    said = _SAID.get()
    if said is not None and text not in said:
        said.append(text)


@contextmanager
def remarks() -> Iterator[list[str]]:
    """In it, somebody asks."""
    said: list[str] = []
    token = _SAID.set(said)
    try:
        yield said
    finally:
        _SAID.reset(token)
