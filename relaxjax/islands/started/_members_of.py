"""Which member a process of this command was, and whether another command has its name.

A command draws a word, and each process that it starts has that word and one of its
own in its environment, which its record in `members/` repeats: a process that ends is
found by it, whatever has joined under its name since.
"""

import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from relaxjax.islands.carriers._foreign import plain
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._members import Member
from relaxjax.islands.common._names import STARTED

_WATCHED = 1.0  # seconds in which a member that is alive beats, as a rule


def drawn(before: str = "") -> str:
    """A word that nobody else has; behind one of the command's."""
    return f"{before}{'.' if before else ''}{secrets.token_hex(8)}"


def mark_left(store: Store, name: str, started: str) -> bool:
    """Nobody waits for the process that had this word, if it has joined.

    Returns:
      Whether a newer process has joined under its name.
    """
    newest = members.newest(store).get(name, 0)
    for incarnation in range(newest, max(0, newest - members.KEPT), -1):
        member = Member(name, incarnation)
        if _word(members.details(store, member)).startswith(started):
            members.leave(store, member)
            return incarnation < newest
    return False


def require_free(
    store: Store,
    names: Sequence[str],
    say: Callable[[str], None],
    own: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Says which names another command's processes have, before they are superseded.

    Args:
      store: the run.
      names: those of the islands that are to be started.
      say: for what is alive on another machine, or was started by hand.
      own: the command's word; what it has started elsewhere is not another's.
      sleep: waits for seconds.

    Raises:
      ValueError: a process of this machine has one, under another command.
    """
    newest = members.newest(store)
    taken = [Member(name, newest[name]) for name in names if name in newest]
    left = store.names(members.FOLDER)
    taken = [member for member in taken if f"{member}.left" not in left]
    records = {member: members.details(store, member) for member in taken}
    others = {
        member: record
        for member, record in records.items()
        if not (own and _word(record).startswith(own))
    }
    for member, record in others.items():
        if _runs_here(record):
            raise ValueError(
                f"islands: {member.name} of {store.place} is running "
                f"({_where(record)}), and another command has started it: end that "
                "one first, or give another folder"
            )
    watch = members.Watch(store, _WATCHED / 2)
    for pause in (_WATCHED, 0.0) if others else ():
        watch.look()
        sleep(pause)
    for member, record in others.items():
        if watch.is_alive(member):
            say(
                f"{member.name} is alive ({_where(record)}), and ends when the "
                "process that starts now has joined: one command has a name"
            )


def _word(record: dict[str, Any]) -> str:
    return str(record.get("started") or "")


def _where(record: dict[str, Any]) -> str:
    host, pid = (plain(str(record.get(key)))[:99] for key in ("host", "pid"))
    return f"{host}, process {pid}"


def _runs_here(record: dict[str, Any]) -> bool:
    """Whether it is a process of this machine, and no other that has its number now."""
    word = f"{STARTED}={_word(record)}".encode()
    if record.get("host") != socket.gethostname() or not _word(record):
        return False
    with suppress(OSError):
        found = Path(f"/proc/{int(record.get('pid', 0))}/environ").read_bytes()
        return word in found.split(b"\0")
    return False
