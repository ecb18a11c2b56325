"""Processes of one machine, an island each: started, watched, and started again.

Who ends with status 0 is done. Any other end is a failure: the process is marked as
left, so that nobody waits for it, and a new one takes its name. Where another command's
process has the name by then, that one goes on. An island that fails several times in a
row, soon after its start, is given up. With `spares`, a process that
has imported JAX stands by for each island (`_spare`).
"""

import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from relaxjax import hosts
from relaxjax._core.foreign._huge_pages import huge_pages
from relaxjax.islands.carriers._foreign import plain
from relaxjax.islands.carriers._open import CARRIER, open_store
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._names import STARTED
from relaxjax.islands.common._still_there import GONE
from relaxjax.islands.started._incarnations import SECONDS_TO_END, Place
from relaxjax.islands.started._members_of import mark_left, require_free
from relaxjax.islands.started._spare import waiting

_POLL = 0.05
_FINAL = {
    members.SUPERSEDED: "another command has this island now",
    GONE: "there is no run to go on with",
}
"""Statuses after which no process is started again, and why."""


def supervise(
    command: Sequence[str],
    names: Sequence[str],
    carrier: str,
    environment: Mapping[str, str] | None = None,
    *,
    spares: bool = False,
) -> int:
    """Runs a command in a process for each name, until all are done.

    Args:
      command: the program and its arguments.
      names: the islands' names.
      carrier: as in `relaxjax.islands.join`.
      environment: variables to set for all of them.
      spares: whether a process that has imported JAX stands by for each island; the
        program is Python then, and runs a script.

    Returns:
      0 if all are done; 1 if an island was given up; 76 if one was superseded by
      another command's; 77 if the folder of the run was removed; 128 + the number of
      the signal that has ended the run, or of SIGPIPE if nobody reads what is printed
      any more.

    Raises:
      ValueError: a carrier that is not one, or cannot be written; an island that
        another command runs on this machine.
    """
    store = open_store(carrier)
    own = {**os.environ, **(environment or {})}.get(STARTED, "")
    require_free(store, [members.check_name(name) for name in names], say, own)
    mortal = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    env = {**os.environ, **(environment or {}), CARRIER: store.carrier}
    env |= huge_pages(env)
    command = [*mortal, *(waiting(command) if spares else command)]
    places = [Place(name, command, env, spares) for name in names]
    given_up = final = 0
    with stopping(places) as asked:
        while any(place.is_open for place in places) and not _is_over(asked, places):
            unread = any(place.unread for place in places)
            if unread and not asked:
                signal.raise_signal(signal.SIGTERM)
            for place in places:
                if not asked:
                    place.start_if_due()
                    place.stand_by()
                how = place.ended()
                if how is None:
                    continue
                code = place.status if place.status in _FINAL else 0
                with suppress(OSError):
                    is_old = mark_left(store, place.name, place.word)
                    code = members.SUPERSEDED if is_old else code
                if asked or place.status == 0:
                    continue
                if code:
                    say(f"{how}; {_FINAL[code]}")
                    final = code
                    continue
                goes_on = place.may_start()
                say(f"{how}; {'starting it again' if goes_on else 'given up'}")
                given_up += not goes_on
                if goes_on:
                    place.start_later()
            time.sleep(_POLL)
    if any(place.unread for place in places):
        return 128 + signal.SIGPIPE
    ended = int(given_up > 0) or final
    return 128 + asked[0] if asked else ended


def _is_over(asked: list[int], places: list[Place]) -> bool:
    """Whether all have ended that were asked to."""
    return bool(asked) and not any(place.process for place in places)


@contextmanager
def stopping(places: list[Place]) -> Iterator[list[int]]:
    """Passes Ctrl-C and SIGTERM on, and kills what has not ended some seconds later."""
    asked: list[int] = []

    def kill() -> None:
        for place in places:
            place.send(signal.SIGKILL)

    def later() -> None:
        time.sleep(SECONDS_TO_END)
        kill()

    def stop(number: int, _: Any) -> None:
        hosts.heard()
        asked.append(number)
        for place in places:
            place.send(signal.SIGTERM)
        Thread(target=later, daemon=True).start()

    signals = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, stop) for number in signals}
    hosts.keeps(nothing="the run is in its folder: the same command goes on")
    try:
        with hosts.listens("the islands have not ended yet", kill):
            yield asked
    finally:
        kill()
        for place in places:
            place.dismiss()
        for number, handler in before.items():
            signal.signal(number, handler)


def say(words: str) -> None:
    """A line on stderr."""
    print(f"relaxjax islands: {plain(words)}", file=sys.stderr, flush=True)
