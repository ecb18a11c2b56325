"""Folders and files that a user names: local ones, wherever the name comes from.

`pathlib` takes an address such as gs://bucket/run for a folder `gs:` in the working
directory, and `~` for a folder of that name.
"""

import os
import re
from pathlib import Path
from urllib.parse import unquote

# Two letters at least: `C:/runs` is a folder. `pathlib` makes one slash of two.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def local_path(caller: str, name: str, value: str | os.PathLike[str]) -> Path:
    """The path, with `~` as the home folder and file:///a/b as /a/b.

    Args:
      caller: whose argument it is.
      name: the argument's name.
      value: what the user gave.

    Raises:
      ValueError: an address of another kind, such as gs://bucket/run; `~name` of no
        user.
    """
    text = os.fspath(value)
    if address := _ADDRESS.fullmatch(text):
        scheme, rest = address.groups()
        if scheme.lower() != "file":
            given = f"{scheme}://{rest}"
            raise ValueError(
                f"{caller}: {name}={given!r} is an address, and only local folders are "
                "written: mount the store and name the mounted folder, or write to a "
                "local one and copy it there"
            )
        text = "/" + unquote(rest.removeprefix("localhost/"))
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"{caller}: {name}={text!r} is in the home folder of nobody here: write "
            f"./{text} for a folder of that name"
        ) from error


def write_whole(path: Path, text: str) -> None:
    """Writes a file so that it holds all of the text, or what it held before.

    What is no file, such as /dev/stdout, is written as it stands.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    path = path.resolve()  # a link stays one
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text)
        part.replace(path)
    except OSError as error:
        if error.filename:
            error.filename = str(path)  # which the user has named
        raise
    finally:
        part.unlink(missing_ok=True)


def own_cache() -> Path:
    """The folder of this user on this machine for what can be made again."""
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "relaxjax"
    )
