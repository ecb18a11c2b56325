"""A worker's pushes: gradients leave as they appear, while the backward pass goes on.

Cost: one thread for each server; a gradient waits in host memory until it is sent.
"""

import time
from queue import SimpleQueue
from threading import Thread

import numpy as np

from benchmarks.testbed.message import TransferError, send
from benchmarks.testbed.pulls import Peer
from benchmarks.testbed.records import Event


class Pushes:
    """The pushes of a step that began at some second, a queue for each server."""

    def __init__(self, peers: list[Peer], owner: dict[str, int], began: float):
        self._owner, self._began = owner, began
        self._queues = [SimpleQueue() for _ in peers]
        self._errors: list[TransferError] = []
        self.events: list[Event] = []
        self._threads = [
            Thread(target=self._push, args=(peer, queue), daemon=True)
            for peer, queue in zip(peers, self._queues, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def add(self, name: str, gradient: np.ndarray) -> None:
        """Hands a gradient over; returns at once."""
        self._queues[self._owner[name]].put((name, gradient))

    def finish(self) -> None:
        """Waits until the servers have everything.

        Raises:
          TransferError: a push or the server's answer did not come through.
        """
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _push(self, peer: Peer, queue: SimpleQueue) -> None:
        what = "answer to all pushes"
        try:
            for name, gradient in iter(queue.get, None):
                what = f"push of {name!r}"
                start = time.perf_counter() - self._began
                send(peer.socket, {"kind": "push", "name": name}, gradient, peer.pace)
                end = time.perf_counter() - self._began
                self.events.append(Event(name, start, end))
            what = "answer to all pushes"
            send(peer.socket, {"kind": "done"})
            peer.expect("thanks")
        except Exception as error:  # whatever it is, somebody waits for this thread
            self._errors.append(peer.lost(what, error))
