# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.islands._channel import Channel as Channel
from relaxjax.islands._channel import Fragment as Fragment
from relaxjax.islands._channel import Joined as Joined
from relaxjax.islands._channel import News as News
from relaxjax.islands._channel import Offer as Offer
from relaxjax.islands._emulate import Program as Program
from relaxjax.islands._emulate import emulate as emulate
from relaxjax.islands._foreign import DamagedFile as DamagedFile
from relaxjax.islands._foreign import plain as plain
from relaxjax.islands._island import Island as Island
from relaxjax.islands._join import found as found
from relaxjax.islands._join import join as join
from relaxjax.islands._join import names as names
from relaxjax.islands._join import open_store as open_store
from relaxjax.islands._members import Member as Member
from relaxjax.islands._members import Superseded as Superseded
from relaxjax.islands._ray_islands import supervise_on_ray as supervise_on_ray
from relaxjax.islands._replay import replay as replay
from relaxjax.islands._rerun import rerun as rerun
from relaxjax.islands._status import Row as Row
from relaxjax.islands._status import Status as Status
from relaxjax.islands._status import status as status
from relaxjax.islands._store import Folder as Folder
from relaxjax.islands._store import Store as Store
from relaxjax.islands._supervise import supervise as supervise

__all__ = [
    "Channel",
    "DamagedFile",
    "Fragment",
    "Island",
    "Joined",
    "Member",
    "News",
    "Offer",
    "Program",
    "Superseded",
    "join",
]
