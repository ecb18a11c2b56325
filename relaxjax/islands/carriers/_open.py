"""Opens the store that a carrier names."""

import os
from collections.abc import Callable
from os.path import isfile
from pathlib import Path

from relaxjax._core.foreign._folders import local_path
from relaxjax.islands.carriers._bucket import Bucket
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.carriers._foreign import LINE, contents
from relaxjax.islands.carriers._ray_store import RayStore
from relaxjax.islands.carriers._relay import RELAY, RelayedStore
from relaxjax.islands.carriers._remembered import Remembered
from relaxjax.islands.carriers._store import FILE, Store

CARRIER = "RELAXJAX_CARRIER"


def open_store(carrier: str) -> Store:
    """The store that a carrier names, as in "folder:runs/x".

    Raises:
      ImportError: what it needs is not installed.
      ValueError: it names none, or one that cannot be written.
    """
    kind, _, place = carrier.partition(":")
    if kind not in _STORES or not place:
        raise ValueError(
            f"islands: carrier={carrier!r} must be folder:DIR, a folder that all "
            "islands see, bucket:URL, as in bucket:s3://name/prefix, or ray:DIR, a "
            "folder on a node of a Ray cluster; `relaxjax islands` sets "
            "RELAXJAX_CARRIER for its processes"
        )
    return _STORES[kind](place)


def found(place: str) -> Store | None:
    """The store of a run that has begun; None if it has not.

    `place` is its folder, or a carrier.
    """
    kind, _, rest = place.partition(":")
    if kind not in _STORES or kind == "folder":
        path = rest if kind == "folder" else place
        folder = local_path("islands", "folder", path)
        return Folder(folder) if isfile(Path(folder, FILE)) else None
    store = _STORES[kind](rest)
    try:
        contents(store, FILE, LINE)
    except FileNotFoundError:
        return None
    return store


def _on_ray(place: str) -> Store:
    """The actor that watches this process answers its calls; elsewhere, the cluster."""
    carrier, address = f"ray:{place}", os.environ.get(RELAY)
    if address and os.environ.get(CARRIER) == carrier:
        return Remembered(RelayedStore(address, carrier))
    return Remembered(RayStore(place))


_STORES: dict[str, Callable[[str], Store]] = {
    "folder": Folder,
    "bucket": Bucket,
    "ray": _on_ray,
}
