"""Processes on real or made-up hosts: links between them, and how they are started.

`Namespaces` makes hosts with links of a chosen rate out of one machine.
"""

from relaxjax.hosts._launch import Ended, launch
from relaxjax.hosts._links import Links, Loopback, Place
from relaxjax.hosts._namespaces import Namespaces, enter

__all__ = ["Ended", "Links", "Loopback", "Namespaces", "Place", "enter", "launch"]
