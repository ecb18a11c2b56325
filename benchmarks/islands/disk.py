"""A folder with a file system of its own, which can be filled: Linux, and root."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Unavailable

_BALLAST = "ballast"
_CHUNK = 1 << 16


@contextmanager
def small_disk(folder: Path, megabytes: int = 256) -> Iterator[Path]:
    """Mounts one at a folder, whose files are in the folder itself afterwards."""
    if os.geteuid() or shutil.which("mount") is None:
        raise Unavailable("a disk that fills up is a tmpfs: Linux, and root")
    folder.mkdir(parents=True)
    how = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    subprocess.run(how, check=True)
    copy = folder.with_suffix(".copy")
    try:
        yield folder
        shutil.copytree(folder, copy)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()
    copy.rename(folder)


def fill(folder: Path) -> Callable[[], None]:
    """Leaves no room; what it returns makes room again."""
    ballast = folder / _BALLAST
    with ballast.open("wb", buffering=0) as file:
        size = _CHUNK
        while size:
            try:
                file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                size //= 2
    return ballast.unlink
