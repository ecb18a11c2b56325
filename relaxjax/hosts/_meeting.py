"""Process 0 hears all that connect at once, until everybody is here or time is over.

Who says nothing of use within `_PATIENCE` is sent away; who leaves counts as not come.
Strangers cost a place in a table, and no time.
"""

import selectors
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from relaxjax.hosts import _messages as messages
from relaxjax.hosts._members import Member, Report, problem

_PATIENCE = 5.0  # seconds that a whole report may take
_TICK = 0.5
_MOST = 256  # connections without a report, of jobs of up to half as many processes
_NAMED = 8  # addresses of processes with another token
_SENDING = 5.0  # seconds for all answers


class _Guest:
    """A connection, and what has come over it so far."""

    def __init__(self, connection: socket.socket, address: str):
        self.connection, self.address = connection, address
        self.since = time.monotonic()
        self.mine, self.theirs = messages.nonce(), ""
        self.text = bytearray()
        self.report: Report | None = None


class Meeting:
    """Hears reports over the listeners, and answers them.

    Attributes:
      refused: addresses of processes with another token.
      gone: processes that came and left.
    """

    def __init__(self, listeners: Sequence[socket.socket], first: Report, token: str):
        self.refused: set[str] = set()
        self.gone: dict[int, Member] = {}
        self._first, self._token = first, token
        self._listeners = listeners
        self._guests: list[_Guest] = []
        self._selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def reports(self) -> list[Report]:
        """The reports of those that are here, process 0's first."""
        return [self._first, *(g.report for g in self._guests if g.report)]

    def gather(self, until: float) -> None:
        """Returns when all are here, when they do not fit, or at the given moment."""
        while len(reports := self.reports()) < self._first.processes:
            left = until - time.monotonic()
            if left <= 0 or problem(reports):
                return
            for key, _ in self._selector.select(min(left, _TICK)):
                if isinstance(key.data, _Guest):
                    if key.data in self._guests:  # one may end another
                        self._hear(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self._welcome(key.fileobj)
            self._send_strangers_away()

    def answer(self, answer: messages.Answer) -> None:
        """Gives all that are here the same answer."""
        until, content = time.monotonic() + _SENDING, messages.answered(answer)
        for guest in self._guests:
            if guest.report:
                purpose = f"answer {guest.mine} {guest.theirs}"
                line = messages.sealed(self._token, purpose, content)
                guest.connection.settimeout(max(0.001, until - time.monotonic()))
                with suppress(OSError):
                    guest.connection.sendall(line)

    def close(self) -> None:
        """Closes all connections and listeners."""
        for guest in self._guests:
            guest.connection.close()
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    def _welcome(self, listener: socket.socket) -> None:
        try:
            connection, address = listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no more files, say: the oldest stranger makes room
            self._leave_oldest()
            time.sleep(0.01)
            return
        connection.setblocking(False)
        guest = _Guest(connection, address[0])
        self._guests.append(guest)
        self._selector.register(connection, selectors.EVENT_READ, guest)
        self._say(guest, f"{messages.HELLO} {guest.mine}")
        if len(self._guests) > max(_MOST, 2 * self._first.processes):
            self._leave_oldest()

    def _hear(self, guest: _Guest) -> None:
        """Takes what has arrived; a whole line is a report, or ends the connection."""
        try:
            piece = guest.connection.recv(messages.REPORT)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._leave(guest)
        elif guest.report is None:  # after its report, nothing is awaited
            guest.text += piece
            if b"\n" in guest.text:
                self._read(guest, bytes(guest.text).partition(b"\n")[0])
            elif len(guest.text) > messages.REPORT:
                self._leave(guest)

    def _read(self, guest: _Guest, line: bytes) -> None:
        try:
            content = messages.opened(self._token, f"report {guest.mine}", line)
            report, guest.theirs = messages.report_of(content)
        except messages.OtherTokenError:
            if len(self.refused) < _NAMED:
                self.refused.add(guest.address)
            self._say(guest, messages.REFUSED)
            self._leave(guest)
        except ValueError:
            self._leave(guest)
        else:
            for other in self._guests:  # of which the end has not been heard yet
                if other.report and _same(other.report.member, report.member):
                    self._leave(other)
            guest.report = report
            self.gone.pop(report.member.process_id, None)

    def _say(self, guest: _Guest, line: str) -> None:
        with suppress(OSError):  # it has left already
            guest.connection.send(f"{line}\n".encode())

    def _leave(self, guest: _Guest) -> None:
        self._selector.unregister(guest.connection)
        guest.connection.close()
        self._guests = [other for other in self._guests if other is not guest]
        if guest.report:
            self.gone[guest.report.member.process_id] = guest.report.member

    def _leave_oldest(self) -> None:
        for guest in self._guests:
            if guest.report is None:
                self._leave(guest)
                return

    def _send_strangers_away(self) -> None:
        before = time.monotonic() - _PATIENCE
        for guest in self._guests:
            if guest.report is None and guest.since < before:
                self._leave(guest)


def _same(one: Member, other: Member) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("process_id", "host", "pid")
    )
