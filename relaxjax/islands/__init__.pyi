# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.islands.carriers._folder import Folder as Folder
from relaxjax.islands.carriers._foreign import DamagedFile as DamagedFile
from relaxjax.islands.carriers._foreign import plain as plain
from relaxjax.islands.carriers._open import found as found
from relaxjax.islands.carriers._open import open_store as open_store
from relaxjax.islands.carriers._store import Store as Store
from relaxjax.islands.common._channel import Channel as Channel
from relaxjax.islands.common._channel import Fragment as Fragment
from relaxjax.islands.common._channel import Joined as Joined
from relaxjax.islands.common._channel import News as News
from relaxjax.islands.common._channel import Offer as Offer
from relaxjax.islands.common._members import Member as Member
from relaxjax.islands.common._members import Superseded as Superseded
from relaxjax.islands.common._names import names as names
from relaxjax.islands.common._status import Row as Row
from relaxjax.islands.common._status import Status as Status
from relaxjax.islands.common._status import status as status
from relaxjax.islands.common._still_there import RunGone as RunGone
from relaxjax.islands.one._island import Island as Island
from relaxjax.islands.one._join import join as join
from relaxjax.islands.replayed._emulate import Program as Program
from relaxjax.islands.replayed._emulate import emulate as emulate
from relaxjax.islands.replayed._replay import replay as replay
from relaxjax.islands.replayed._rerun import rerun as rerun
from relaxjax.islands.started._ray_islands import supervise_on_ray as supervise_on_ray
from relaxjax.islands.started._supervise import supervise as supervise

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
    "RunGone",
    "Superseded",
    "join",
]
