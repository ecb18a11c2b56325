"""Where islands leave files for each other: a folder, or anything that does the same.

The one verb that decides is `create`: of several that create a name, one wins, whatever
machine they are on. `probe` lets two creators race, and refuses a file system on which
both win.
"""

import errno
import threading
from typing import Any, Protocol

_PROBES = 8

FILE = "run.json"
"""By it a folder is known as a run's."""


class Store(Protocol):
    """Files by name, with slashes; a missing one is a `FileNotFoundError`.

    Attributes:
      place: what messages call it.
      carrier: how `join` names it.
    """

    place: str
    carrier: str

    def create(self, name: str, data: bytes) -> bool:
        """Writes a file that is not there yet; False, and no change, if it is."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file, whole or not at all; another may be gone for it."""
        ...

    def read(self, name: str, most: int | None = None) -> bytes:
        """The bytes of a file; EFBIG if it has more than `most`."""
        ...

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted; empty if it is not there."""
        ...

    def delete(self, name: str) -> None:
        """Removes a file or an empty folder, if it is there."""
        ...


class ByCalls:
    """The operations of a `Store`, each a call of whoever has the files."""

    def create(self, name: str, data: bytes) -> bool:
        """Writes a file that is not there yet."""
        return self._call("create", name, data)

    def replace(self, name: str, data: bytes) -> None:
        """Writes a file, whole or not at all."""
        self._call("replace", name, data)

    def read(self, name: str, most: int | None = None) -> bytes:
        """The bytes of a file; EFBIG if it has more than `most`."""
        return self._call("read", name, most)

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        return self._call("names", folder)

    def delete(self, name: str) -> None:
        """Removes a file or an empty folder, if it is there."""
        self._call("delete", name)

    def _call(self, verb: str, name: str, *rest: Any) -> Any:
        raise NotImplementedError


def too_large(size: int, most: int, name: str) -> OSError:
    """The error of a file that is larger than any of its kind."""
    return OSError(errno.EFBIG, f"it has {size} bytes, and at most {most} here", name)


def probe(store: Store, own: str) -> None:
    """Lets two creators race for names, and removes what they wrote.

    Raises:
      ValueError: both won, or neither did, or the loser's bytes are there.
    """
    for number in range(_PROBES):
        name = f"probe/{own}.{number}"
        won = _race(store, name)
        try:
            kept = store.read(name)
        finally:
            store.delete(name)
        if sum(won) != 1 or kept != b"%d" % won.index(True):
            raise ValueError(
                f"islands: two creators of one file in {store.place} ended with "
                f"{won}, and exactly one must win: commits are not safe here. Take "
                "another file system (for NFS version 4, without `nolock`), or another "
                "service, with conditional puts"
            )


def _race(store: Store, name: str) -> list[bool]:
    won, start = [False, False], threading.Barrier(2)
    errors: list[Exception] = []

    def run(i: int) -> None:
        start.wait()
        try:
            won[i] = store.create(name, b"%d" % i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return won
