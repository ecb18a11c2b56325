# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.hosts._interrupt import asked as asked
from relaxjax.hosts._interrupt import end_if_asked as end_if_asked
from relaxjax.hosts._interrupt import heard as heard
from relaxjax.hosts._interrupt import install as install
from relaxjax.hosts._interrupt import keeps as keeps
from relaxjax.hosts._interrupt import kept as kept
from relaxjax.hosts._interrupt import listens as listens
from relaxjax.hosts._interrupt import told as told
from relaxjax.hosts._interrupt import writing as writing
from relaxjax.hosts._join import Hosts as Hosts
from relaxjax.hosts._join import join as join
from relaxjax.hosts._launch import Ended as Ended
from relaxjax.hosts._launch import launch as launch
from relaxjax.hosts._links import Links as Links
from relaxjax.hosts._links import Loopback as Loopback
from relaxjax.hosts._links import Namespaces as Namespaces
from relaxjax.hosts._links import Place as Place
from relaxjax.hosts._links import enter as enter
from relaxjax.hosts._members import Member as Member
from relaxjax.hosts._watch import LostProcess as LostProcess
from relaxjax.hosts._watch import Watch as Watch

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
