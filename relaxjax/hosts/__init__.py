"""Processes on real or made-up hosts: links between them, and how they are started.

`Namespaces` makes hosts with links of a chosen rate out of one machine.
"""

from relaxjax.hosts._join import Hosts, join
from relaxjax.hosts._launch import Ended, launch
from relaxjax.hosts._links import Links, Loopback, Place
from relaxjax.hosts._namespaces import Namespaces, enter
from relaxjax.hosts._rendezvous import Member
from relaxjax.hosts._watch import LostProcess, Watch

__all__ = [
    "Ended",
    "Hosts",
    "Links",
    "Loopback",
    "LostProcess",
    "Member",
    "Namespaces",
    "Place",
    "Watch",
    "enter",
    "join",
    "launch",
]
