"""What a store has answered, kept until the store says that it may have changed.

Islands look at the same few small files again and again. Where each look is a call of
another machine, one call tells which files have changed since the last one, and all
else is answered from memory:

    journal             names that were written or removed, in order; the last 4096
    answer for a name   kept until the name, or one in that folder, is in the journal

An answer is kept only if no change was heard of while it was under way: an older one
would outlive the change. Answers are at most `fresh_for` seconds old, and never older
than this process's own last write.

Cost: a call every `fresh_for` seconds at most, and one for each changed answer.
"""

import time
import uuid
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple, Protocol

from relaxjax.islands.carriers._store import ByCalls, Store

_READS = frozenset({"read", "names"})
_LAST = 4096  # changes that a journal keeps
_MOST = 1024  # answers that are kept
_SMALL = 4096  # bytes of a file that is kept


class Changes(NamedTuple):
    """What has changed in a store.

    Attributes:
      journal: which journal this is: another one begins when a store starts again.
      number: of changes that it has had.
      names: files that have changed; None if anything may have.
    """

    journal: str
    number: int
    names: list[str] | None


class Recorded(ByCalls):
    """A store that keeps a journal of what is changed through it.

    Attributes:
      place: what messages call it.
      carrier: how `join` names it.
    """

    def __init__(self, store: Store):
        self.place, self.carrier, self._store = store.place, store.carrier, store
        self._journal, self._count = uuid.uuid4().hex, 0
        self._last, self._lock = deque[str](maxlen=_LAST), Lock()

    def changes(self, journal: str, count: int) -> Changes:
        """What has changed since a journal had that many changes."""
        with self._lock:
            new, names = self._count - count, None
            if journal == self._journal and new <= len(self._last):
                names = [*self._last][len(self._last) - new :]
            return Changes(self._journal, self._count, names)

    def _call(self, verb: str, name: str, *rest: Any) -> Any:
        try:
            return getattr(self._store, verb)(name, *rest)
        finally:
            if verb not in _READS:  # a write that fails may have come about
                with self._lock:
                    self._last.append(name)
                    self._count += 1


class _Missing(NamedTuple):
    """The answer that a file is not there: the parts of an error."""

    number: int | None
    why: str | None
    file: Any


class Journaled(Store, Protocol):
    """A store that keeps a journal."""

    def changes(self, journal: str, count: int) -> Changes:
        """What has changed since a journal had that many changes."""
        ...


class Remembered(ByCalls):
    """A store whose answers are kept.

    Attributes:
      place: what messages call it.
      carrier: how `join` names it.
    """

    def __init__(
        self,
        store: Journaled,
        fresh_for: float = 0.01,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.place, self.carrier = store.place, store.carrier
        self._store, self._fresh_for, self._clock = store, fresh_for, clock
        self._kept: dict[tuple[str, str], Any] = {}
        self._heard, self._looked = Changes("", 0, None), float("-inf")
        self._lock = Lock()

    def _call(self, verb: str, name: str, *rest: Any) -> Any:
        if verb not in _READS:
            try:
                return getattr(self._store, verb)(name, *rest)
            finally:
                self._looked = float("-inf")
        self._look()
        asked, heard = (verb, name), self._heard
        if (answer := self._kept.get(asked)) is None:
            answer = self._ask(verb, name, *rest)
            with self._lock:
                if heard is self._heard and _is_small(answer):
                    self._kept[asked] = answer
        if isinstance(answer, _Missing):
            raise FileNotFoundError(answer.number, answer.why, answer.file)
        return answer

    def _ask(self, verb: str, name: str, *rest: Any) -> Any:
        try:
            return getattr(self._store, verb)(name, *rest)
        except FileNotFoundError as error:
            return _Missing(error.errno, error.strerror, error.filename)

    def _look(self) -> None:
        """Forgets what has changed."""
        now = self._clock()
        with self._lock:
            if now - self._looked < self._fresh_for:
                return
            self._looked = now  # another thread's write may take it back meanwhile
            try:
                heard = self._store.changes(self._heard.journal, self._heard.number)
            except OSError:
                self._looked = float("-inf")
                raise
            if heard.names is None or len(self._kept) > _MOST:
                self._kept = {}
            for name in heard.names or ():
                self._kept.pop(("read", name), None)
                while name:
                    name = name.rpartition("/")[0]
                    self._kept.pop(("names", name), None)
            self._heard = heard


def _is_small(answer: Any) -> bool:
    return not isinstance(answer, bytes) or len(answer) <= _SMALL
