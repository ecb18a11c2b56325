"""Islands: processes that train apart, and merge while others come and go."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "common._channel": "Channel Fragment Joined News Offer",
        "replayed._emulate": "Program",
        "carriers._foreign": "DamagedFile",
        "one._island": "Island",
        "one._join": "join",
        "common._members": "Member Superseded",
        "common._still_there": "RunGone",
    },
    shared={
        "replayed._emulate": "emulate",
        "carriers._foreign": "plain",
        "carriers._folder": "Folder",
        "carriers._open": "found open_store",
        "common._names": "names",
        "started._ray_islands": "supervise_on_ray",
        "replayed._replay": "replay",
        "replayed._rerun": "rerun",
        "common._status": "Row Status status",
        "carriers._store": "Store",
        "started._supervise": "supervise",
    },
)
