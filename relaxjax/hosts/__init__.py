"""Processes on several hosts: how they start, find, watch and stop each other.

`Namespaces` makes hosts with links of a chosen rate out of one machine.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_join": "Hosts join",
        "_launch": "Ended launch",
        "_links": "Links Loopback Namespaces Place enter",
        "_members": "Member",
        "_watch": "LostProcess Watch",
    },
    shared={
        "_interrupt": "asked end_if_asked heard install keeps kept listens told "
        "writing",
    },
)
