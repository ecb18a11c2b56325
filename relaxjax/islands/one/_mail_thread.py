"""What runs beside the training of an island: a thread that talks to the carrier.

It sends what the island offers, fetches what was merged, beats, and merges if this
island holds the lease. The training thread only looks into memory. What fails on the
way to the carrier (a full disk, a damaged file) is said once and tried again, and the
training goes on; what must end the island is raised in the training thread.
"""

import sys
import threading
from collections.abc import Callable

from relaxjax._core.foreign._switches import unswitched
from relaxjax.islands.carriers._foreign import DamagedFile, plain
from relaxjax.islands.common._channel import Fragment, News, Offer
from relaxjax.islands.common._store_channel import StoreChannel


class Voice:
    """Says each thing once, until it has changed.

    Attributes:
      name: who speaks.
    """

    def __init__(self, name: str, write: Callable[[str], None] | None = None):
        self.name, self._write = name, write or _to_stderr
        self._said: set[str] = set()

    def say(self, words: str, cause: str = "") -> None:
        """Says what has not been said; `cause` is what makes it the same."""
        if (cause or words) not in self._said:
            self._said.add(cause or words)
            words = plain(words.removeprefix("islands: "))
            self._write(f"islands: [{self.name}] {words}")

    def forget(self, cause: str) -> None:
        """From here on this would be news again."""
        self._said.discard(cause)


class Post:
    """The thread, and what it and the training thread exchange."""

    def __init__(self, channel: StoreChannel, voice: Voice, poll: float, version: int):
        self._channel, self._voice, self._poll = channel, voice, poll
        self._version, self._wanted = version, False
        self._arrived: dict[int, Fragment] = {}
        self._merged: set[int] = set()
        self._outbox: Offer | None = None
        self._offered = 0  # the newest merge that was offered to
        self._error: Exception | None = None
        self._failing: set[str] = set()
        self._changed, self._wake = threading.Condition(), threading.Event()
        self._stop = self._hopeless = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="islands")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def send(self, offer: Offer) -> None:
        """Hands over a contribution; one that has not gone out yet is replaced."""
        with self._changed:
            self._outbox, self._offered = offer, offer.version
        self._wake.set()

    def arrived(self) -> News:
        """What has come since the last call; raises what must end the island."""
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._stop:
                raise RuntimeError(
                    "islands: this island has left the run: exchange before close(), "
                    "inside of its `with` block"
                )
            new = [fragment for _, fragment in sorted(self._arrived.items())]
            merged, self._arrived, self._merged = self._merged, {}, set()
            return News(self._version, new, merged, self._wanted)

    def wait_for(self, version: int) -> None:
        """Waits until a version is there or never will be, or the thread has ended."""

        def is_over() -> bool:
            ended = self._error is not None or self._stop
            return self._version >= version or ended or self._hopeless

        with self._changed:
            self._changed.wait_for(is_over)
            if self._hopeless and self._version < version:
                self._voice.say(
                    "too many islands have left for the quorum; this one trains alone"
                )

    def close(self) -> None:
        """Ends the thread, and leaves."""
        self._stop = True
        self._wake.set()
        self._thread.join()
        try:
            self._channel.leave()
        except OSError as error:
            self._voice.say(f"could not leave ({error}); the others will notice")

    @unswitched()
    def _run(self) -> None:
        while not self._stop:
            try:
                self._turn()
                self._recovered()
            except (OSError, DamagedFile) as error:
                self._fails(error)
            except Exception as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            self._wake.wait(self._poll)
            self._wake.clear()
        self._empty()
        with self._changed:
            self._changed.notify_all()

    def _empty(self) -> None:
        """Sends and merges what the last `exchange` has handed over.

        The last island to leave takes the lease in one turn, and merges in the next.
        """
        if self._offered <= self._version:
            return
        try:
            self._turn()
            self._turn()
        except Exception as error:
            self._voice.say(f"the last contribution did not go out: {error}")

    def _turn(self) -> None:
        self._take(self._channel.adopt())
        offer = self._outbox
        if offer is not None:
            self._channel.offer(offer)
            with self._changed:
                if self._outbox is offer:
                    self._outbox = None
        if self._channel.syncer.turn():
            self._take(self._channel.adopt())
        with self._changed:
            self._hopeless = self._channel.syncer.is_hopeless()
            self._changed.notify_all()

    def _take(self, news: News) -> None:
        with self._changed:
            self._version, self._wanted = news.version, news.wanted
            self._arrived |= {f.number: f for f in news.fragments}
            self._merged |= news.merged
            self._changed.notify_all()

    def _fails(self, error: Exception) -> None:
        words = cause = str(error)
        if isinstance(error, OSError):
            file = str(error.filename or "the carrier")
            cause = f"{error.errno} {file.rpartition('/')[0]}"
            words = (
                f"{file}: {error.strerror}; training goes on, and merges wait until "
                "this is mended"
            )
        self._voice.say(words, cause)
        self._failing.add(cause)

    def _recovered(self) -> None:
        if self._failing:
            for cause in self._failing:
                self._voice.forget(cause)
            self._failing = set()
            self._voice.say("the carrier works again")
            self._voice.forget("the carrier works again")


def _to_stderr(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
