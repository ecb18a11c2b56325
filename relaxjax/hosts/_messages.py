"""What processes say to each other before JAX's runtime starts: three short lines.

    process 0:  relaxjax-meeting-1 N       N, M: random numbers, fresh every time
    process i:  mac("report N")  {"report": [...], "nonce": M}
    process 0:  mac("answer N M")  {"members": [...]}, or {"kind": ..., "error": ...}

mac(s) is the HMAC-SHA256 of s and the line's own text under the job's token, so that
the token itself does not travel, and a line of an earlier meeting is worth nothing. The
empty token keeps out those that speak something else, and nobody who means ill.

Lines come from whoever reaches the port: they have a limit, and every type is checked.
"""

import hmac
import json
import re
import secrets
import socket
import time
from typing import Any

from relaxjax._core.foreign._json import parsed
from relaxjax.hosts._launchers import Layout
from relaxjax.hosts._members import Member, Report

HELLO = "relaxjax-meeting-1"
REFUSED = "relaxjax-meeting-1 refused"  # to a process with another token
REPORT, ANSWER = 1 << 14, 1 << 23  # bytes that a line of each kind may have
_WORD, _LARGEST, _VERSIONS = 255, 2**31, 64
_ERRORS = {"value": ValueError, "timeout": TimeoutError}
_NONCE = re.compile(r"[0-9a-f]{32}")
_SEALED = re.compile(rb"([0-9a-f]{64}) (.*)", re.DOTALL)

Answer = tuple[Member, ...] | Exception  # the members, or why there is no job


class OtherTokenError(ValueError):
    """A line is in form, and made under another token."""


def nonce() -> str:
    """A number that no line has been made for before."""
    return secrets.token_hex(16)


def greeted(line: bytes) -> str:
    """The nonce of a greeting.

    Raises:
      ValueError: the line is no greeting.
    """
    hello, _, number = line.decode("ascii", "replace").partition(" ")
    if hello != HELLO or not _NONCE.fullmatch(number):
        raise ValueError("no greeting")
    return number


def sealed(token: str, purpose: str, content: Any) -> bytes:
    """A line with a content, made for one purpose."""
    body = json.dumps(content)
    return f"{_mac(token, purpose, body.encode())} {body}\n".encode()


def opened(token: str, purpose: str, line: bytes) -> Any:
    """The content of a line that `sealed` has made.

    Raises:
      OtherTokenError: it was made under another token, or for another purpose.
      ValueError: it is no such line.
    """
    match = _SEALED.fullmatch(line)
    if match is None:
        raise ValueError("not a line of a meeting")
    if not hmac.compare_digest(_mac(token, purpose, match[2]), match[1].decode()):
        raise OtherTokenError("made under another token")
    return parsed(match[2])


def report_of(content: Any) -> tuple[Report, str]:
    """A report and the nonce of who made it.

    Raises:
      ValueError: a part has another type or size.
    """
    parts = _dict(content)
    row, processes, versions, layout = _list(parts.get("report"), 4)
    number = _word(parts.get("nonce"))
    _require(_NONCE.fullmatch(number) is not None)
    _require(len(_dict(versions)) <= _VERSIONS)
    texts = {_word(name): _word(text) for name, text in versions.items()}
    return Report(member_of(row), _count(processes), texts, _layout(layout)), number


def answered(answer: Answer) -> dict[str, Any]:
    """The content of an answer."""
    if not isinstance(answer, Exception):
        return {"members": answer}
    kind = "timeout" if isinstance(answer, TimeoutError) else "value"
    return {"kind": kind, "error": str(answer)}


def answer_of(content: Any, processes: int) -> Answer:
    """An answer, of what `answered` makes.

    Raises:
      ValueError: the content is another message, or for another number of processes.
    """
    parts = _dict(content)
    if kind := parts.get("kind"):
        _require(kind in ("value", "timeout"))
        return _ERRORS[kind](str(parts.get("error")))
    rows = _list(parts.get("members"), processes)
    members = tuple(map(member_of, rows))
    _require([m.process_id for m in members] == [*range(processes)])
    return members


def member_of(row: Any) -> Member:
    """A member, of the row of a line.

    Raises:
      ValueError: a part has another type or size.
    """
    number, host, address, pid, ids, sees = _list(row, 6)
    devices = None if ids is None else tuple(map(_count, _list(ids)))
    named = _count(number), _word(host), _word(address), _count(pid)
    return Member(*named, devices, _word(sees))


def read_line(connection: socket.socket, until: float, most: int) -> bytes:
    """One line of at most so many bytes, read before a moment of `time.monotonic`.

    Raises:
      OSError: the connection is closed before (ConnectionError), or the time is over.
      ValueError: the line is longer.
    """
    text = bytearray()
    while b"\n" not in text:
        if len(text) >= most:
            raise ValueError("a line that is too long")
        connection.settimeout(max(0.001, until - time.monotonic()))
        piece = connection.recv(min(1 << 16, most - len(text)))
        if not piece:
            raise ConnectionError("the connection was closed")
        text += piece
    return bytes(text).partition(b"\n")[0]


def _mac(token: str, purpose: str, body: bytes) -> str:
    text = purpose.encode() + b"\n" + body
    return hmac.new(token.encode(errors="surrogateescape"), text, "sha256").hexdigest()


def _dict(value: Any) -> dict[str, Any]:
    _require(isinstance(value, dict))
    return value


def _layout(value: Any) -> Layout | None:
    if value is None:
        return None
    local, here, visible, own = _list(value, 4)
    _require(isinstance(own, bool) and here != 0)
    here, visible = (None if one is None else _count(one) for one in (here, visible))
    _require(visible is None or visible <= _WORD)  # a share of them is counted out
    return Layout(_count(local), here, visible, own)


def _list(value: Any, length: int | None = None) -> list[Any]:
    _require(isinstance(value, list))
    _require(len(value) <= _WORD if length is None else len(value) == length)
    return value


def _count(value: Any) -> int:
    _require(type(value) is int and 0 <= value < _LARGEST)
    return value


def _word(value: Any) -> str:
    _require(isinstance(value, str) and len(value) <= _WORD and value.isprintable())
    return value


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("not what a process reports")
