"""All processes stop before the same step, when one of them is asked to.

    asked:  some process has had a signal
    at_i:   the step that process i has begun last; it begins none until T is known
    T:      1 + max_i at_i, the first step that no process has begun

Threads beside the main ones agree on T, so that it does not matter which main thread
waits for whose collective: a step that one process has begun, all begin.

Cost: the loop waits for two readings of the store, once.
"""

import threading
from collections.abc import Mapping

from relaxjax.hosts._join import WATCH, Hosts


class Stop:
    """One process's part in the agreement."""

    def __init__(self, hosts: Hosts):
        self._hosts, self.under = hosts, WATCH
        self._changed = threading.Condition()
        self._asked: str | None = None
        self._waits = False
        self._target: int | None = None
        self.step = -1  # begun last
        self.stopped = False  # before that step, as all agreed

    def ask(self, why: str) -> bool:
        """Asks all to stop; False if this process had asked before."""
        fresh, self._asked = self._asked is None, self._asked or why
        return fresh

    @property
    def asked(self) -> bool:
        """Whether this process has asked."""
        return self._asked is not None

    def before(self, step: int, given_up: threading.Event) -> bool:
        """Whether to stop before a step; if not, the step counts as begun.

        `given_up` ends the wait for the others.
        """
        with self._changed:
            while self._waits and not given_up.is_set():
                self._changed.wait(0.1)
            self.stopped = self._target is not None and step >= self._target
            if not self.stopped:
                self.step = step
            return self.stopped

    def agree(self, texts: Mapping[str, str]) -> None:
        """Takes part, given all that its watch has; called again and again."""
        store, mine = self._hosts.board, self._hosts.process_id
        if self._asked and "asked" not in texts:
            store.put_if_absent(f"{self.under}/asked", self._asked)
        if "asked" not in texts or self._target is not None:
            return
        with self._changed:
            self._waits = True
        store.put(f"{self.under}/at/{mine}", str(self.step))
        begun = [_begun(texts, i) for i in range(len(self._hosts.members))]
        known = [step for step in begun if step is not None]
        if len(known) == len(begun):
            with self._changed:
                self._target, self._waits = 1 + max(known), False
                self._changed.notify_all()


def _begun(texts: Mapping[str, str], process: int) -> int | None:
    """The last step of a process that waits or has left its loop."""
    if at := texts.get(f"at/{process}"):
        return int(at)
    sign = texts.get(f"sign/{process}", "").split()
    return int(sign[1]) if sign and sign[2] == "done" else None
