"""A folder as a store, on a local or a shared file system.

A name is created by a hard link to a file that is written and synchronized beforehand,
so that nobody ever sees half a file.

Cost: two calls of fsync for each file that is created; a heartbeat has none.
"""

import errno
import os
import stat
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

from relaxjax._core.foreign._folders import local_path
from relaxjax.islands.carriers._store import too_large

_TMP = "tmp"
_OLD = 3600  # seconds; a file that is written is there for a few
_AS_IT_IS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Folder:
    """A folder that all islands see, local or shared.

    Attributes:
      place: its absolute path.
      carrier: "folder:" and the path.
    """

    def __init__(self, path: str | os.PathLike[str]):
        """Makes the folder.

        Raises:
          ValueError: it cannot be made or written to.
        """
        self._root = local_path("islands", "folder", path).absolute()
        self.place = str(self._root)
        self.carrier = f"folder:{self.place}"
        self._numbers = count()
        try:
            (self._root / _TMP).mkdir(parents=True, exist_ok=True)
            if not os.access(self._root, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise ValueError(
                f"islands: cannot write to the folder {self.place} ({error.strerror}); "
                "name another, or change its permissions"
            ) from error
        self._sweep()

    def create(self, name: str, data: bytes) -> bool:
        """Links a whole file to a name, which fails where the name is taken."""
        target, mine = self._target(name), self._temporary(data, durable=True)
        try:
            os.link(mine, target)
        except FileExistsError:
            # The answer of a network file system may be lost where the link is made.
            return _links_to(mine, target)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                raise ValueError(
                    f"islands: the file system of {self.place} has no hard links "
                    f"({error.strerror}), by which islands commit; take another folder"
                ) from error
            raise
        finally:
            mine.unlink(missing_ok=True)
        _synchronize(target.parent)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Renames a whole file over a name."""
        mine = self._temporary(data, durable=False)
        try:
            os.replace(mine, self._target(name))
        finally:
            mine.unlink(missing_ok=True)

    def read(self, name: str, most: int | None = None) -> bytes:
        """The bytes of a file, and of no link, folder or pipe under its name."""
        path = self._root / name
        with os.fdopen(os.open(path, _AS_IT_IS), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENXIO
                raise OSError(number, "it is no regular file", str(path))
            if most is not None and found.st_size > most:
                raise too_large(found.st_size, most, str(path))
            return file.read()

    def names(self, folder: str) -> list[str]:
        """Names in a folder, sorted."""
        try:
            return sorted(os.listdir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def delete(self, name: str) -> None:
        """Removes a file or an empty folder, if it is there."""
        path = self._root / name
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):
                path.rmdir()
        else:
            path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Removes what processes that were killed have left half-written.

        The folder's own time says how old a file is, so that no clock is compared.
        """
        tmp = self._root / _TMP
        with suppress(OSError), os.scandir(tmp) as found:
            now = tmp.stat().st_mtime
            for entry in found:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < now - _OLD:
                        os.unlink(entry.path)

    def _target(self, name: str) -> Path:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _temporary(self, data: bytes, durable: bool) -> Path:
        """A file of these bytes under a name that nobody else has."""
        own = f"{os.uname().nodename}.{os.getpid()}.{threading.get_ident()}"
        path = self._root / _TMP / f"{own}.{id(self):x}.{next(self._numbers)}"
        path.parent.mkdir(exist_ok=True)  # it may have been removed
        try:
            with path.open("xb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
        return path


def _links_to(mine: Path, target: Path) -> bool:
    """Whether the target is this very file."""
    try:
        return os.path.samefile(mine, target)
    except OSError:
        return False


def _synchronize(folder: Path) -> None:
    """Makes the name durable, where folders can be synchronized."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
