"""Islands: processes that train apart, and merge while others come and go."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_channel": "Channel Fragment Joined News Offer",
        "_files": "DamagedFile",
        "_island": "Island join",
        "_members": "Member Superseded",
    },
    shared={
        "_island": "open_store",
        "_replay": "replay",
        "_status": "status",
        "_store": "Folder",
        "_supervise": "supervise",
    },
)
