"""Libraries that only pictures and reports need, and what to install for them."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(what: str) -> Iterator[None]:
    """Names the remedy where a library is missing.

    Args:
      what: what needs it, with the verb, as in "figures need".

    Raises:
      ImportError: the import inside the block failed.

    Example:
      >>> from relaxjax._core.foreign._extra import extra
      >>> with extra("figures need"):
      ...     import matplotlib_that_nobody_has
      Traceback (most recent call last):
      ImportError: figures need matplotlib_that_nobody_has: pip install "relaxjax[cli]"
    """
    try:
        yield
    except ImportError as error:
        missing = error.name or "a library"
        remedy = f'{what} {missing}: pip install "relaxjax[cli]"'
        raise ImportError(remedy, name=error.name) from error
