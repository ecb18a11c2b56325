"""Islands: processes that train apart, and merge while others come and go."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_channel": "Channel Fragment Joined News Offer",
        "_emulate": "Program",
        "_foreign": "DamagedFile",
        "_island": "Island",
        "_join": "join",
        "_members": "Member Superseded",
    },
    shared={
        "_emulate": "emulate",
        "_foreign": "plain",
        "_join": "found names open_store",
        "_ray_islands": "supervise_on_ray",
        "_replay": "replay",
        "_rerun": "rerun",
        "_status": "Row Status status",
        "_store": "Folder Store",
        "_supervise": "supervise",
    },
)
