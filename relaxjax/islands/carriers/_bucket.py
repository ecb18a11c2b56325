"""A bucket of objects: S3 and what speaks like it, Google's, Azure's, by fsspec.

    bucket:s3://NAME/PREFIX      with the package s3fs
    bucket:gs://NAME/PREFIX      with gcsfs;  bucket:az://NAME/PREFIX  with adlfs

`create` is a put that the service refuses if the name is taken (`If-None-Match: *`);
`probe` finds out whether it does. Clients put again by themselves where an answer was
lost, and are then refused because of their own object: so each object ends in a line
that its writer has drawn, by which it knows its own. Nothing is cached: services list
what was written at once.

Keys, endpoints and regions are what fsspec and the service's package find in their own
variables and files, as in AWS_PROFILE or FSSPEC_S3_ENDPOINT_URL.

Cost: one request for each operation, and one more for a name that is taken.
"""

import errno
import re
import secrets
from contextlib import suppress
from importlib import import_module
from typing import Any

from relaxjax.islands.carriers._store import too_large

_STAMP = re.compile(rb"\n[0-9a-f]{32}\Z")
_LENGTH = 33  # of a stamp
_NOT_BUCKETS = ("file", "local", "http", "https")


class Bucket:
    """Objects whose names begin with a prefix.

    Attributes:
      place: "bucket:" and the URL.
      carrier: the same, as `join` takes it.
    """

    def __init__(self, url: str):
        """Finds the service; the first operation finds the bucket.

        Raises:
          ImportError: fsspec, or the package of the service, is not installed.
          ValueError: the URL is not one of a bucket.
        """
        self._files, self._root = _opened(url.rstrip("/"))
        self.place = self.carrier = f"bucket:{url.rstrip('/')}"

    def create(self, name: str, data: bytes) -> bool:
        """Puts an object whose name is not taken; False, and no change, if it is."""
        whole = data + _stamp()
        try:
            self._call("pipe_file", name, whole, mode="create")
            return True
        except OSError as error:
            try:
                there = self._call("cat_file", name)
            except FileNotFoundError:
                what = f"nothing was put ({error})"
                raise OSError(errno.EIO, what, f"{self.place}/{name}") from error
            return there[-_LENGTH:] == whole[-_LENGTH:]

    def replace(self, name: str, data: bytes) -> None:
        """Puts an object, whole or not at all."""
        self._call("pipe_file", name, data + _stamp())

    def read(self, name: str, most: int | None = None) -> bytes:
        """The bytes that were put; those of a foreign object as they are."""
        if most is None:
            return _STAMP.sub(b"", self._call("cat_file", name))
        try:
            data = self._call("cat_file", name, start=0, end=most + _LENGTH + 1)
        except FileNotFoundError:
            raise
        except OSError:  # an object without bytes has no first one
            if self._call("info", name)["size"]:
                raise
            data = b""
        data = _STAMP.sub(b"", data)
        if len(data) > most:
            raise too_large(len(data), most, f"{self.place}/{name}")
        return data

    def names(self, folder: str) -> list[str]:
        """Names under a prefix, up to their next slash, sorted."""
        try:
            found = self._call("ls", folder, detail=False)
        except FileNotFoundError:
            return []
        prefix = f"{self._root}/{folder}/"
        rest = (path.strip("/").removeprefix(prefix.lstrip("/")) for path in found)
        return sorted({name for name in rest if name and "/" not in name})

    def delete(self, name: str) -> None:
        """Removes an object, if it is there."""
        with suppress(FileNotFoundError):
            self._call("rm_file", name)

    def _call(self, verb: str, name: str, *arguments: Any, **options: Any) -> Any:
        """What the service does; all that goes wrong there is an `OSError`."""
        try:
            return getattr(self._files, verb)(
                f"{self._root}/{name}", *arguments, **options
            )
        except OSError:
            raise
        except Exception as error:  # each service has its own
            why = f"{type(error).__name__}: {error}"
            raise OSError(errno.EIO, why, f"{self.place}/{name}") from error


def _opened(url: str) -> tuple[Any, str]:
    """The file system of fsspec, and the path in it."""
    protocol, found, root = url.partition("://")
    if not found or not root.strip("/") or protocol in _NOT_BUCKETS:
        raise ValueError(
            f"islands: carrier='bucket:{url}' must be a URL of fsspec, as in "
            "bucket:s3://name/prefix or bucket:gs://name/prefix; a folder of this "
            "machine is folder:DIR"
        )
    try:
        fsspec = import_module("fsspec")
        return fsspec.filesystem(protocol, use_listings_cache=False), root
    except ImportError as error:
        raise ImportError(
            f"islands: carrier='bucket:{url}' needs fsspec and the package of its "
            'service: pip install "relaxjax[bucket]", which has s3fs, or gcsfs, adlfs '
            f"({error})"
        ) from error
    except ValueError as error:
        raise ValueError(f"islands: carrier='bucket:{url}': {error}") from error


def _stamp() -> bytes:
    return b"\n" + secrets.token_hex(16).encode()
