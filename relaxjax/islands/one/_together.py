"""An island of several processes of one JAX runtime: process 0 has the mail.

All processes must take over the same fragments after the same step. Process 0 alone
talks to the carrier; what its mail answers, or how it fails, it tells the others by a
collective of that runtime:

    head     five int32: what it is, bytes of the letter in two parts, two numbers
    letter   if there is one: an array file (`common._files`), padded with zeros to a
             power of two, so that few programs are compiled

The runtime is one unit: if one of its processes is lost, all end, and the island comes
back as a whole.

Cost: 20 bytes to each process in each step, which waits for the step before it; after a
merge, the fragment.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment, Joined, Mail, News, Offer
from relaxjax.islands.common._files import pack, unpack
from relaxjax.islands.common._members import Member

_T = TypeVar("_T")
_PART = 1 << 30  # a letter may have more bytes than an int32 can say
_LETTER = "what process 0 of this island has told"


class _Kind(IntEnum):
    ANSWER, FAILED, ENDED = range(3)


class _Told(NamedTuple):
    """What process 0 tells: two numbers, and a letter, which may be empty."""

    numbers: tuple[int, int] = (0, 0)
    letter: bytes = b""


class Leading:
    """The mail in process 0, which tells the others what arrives."""

    def __init__(self, mail: Mail):
        self._mail = mail
        self.send, self.wait_for, self.close = mail.send, mail.wait_for, mail.close

    def arrived(self) -> News:
        """What has come since the last call."""
        return _telling(self._mail.arrived, _of_news)


class Following:
    """The mail in the other processes, which hear of what arrives."""

    def arrived(self) -> News:
        """What has come to process 0 since its last call.

        Raises:
          RuntimeError: process 0 has an error, which it raises itself.
        """
        (version, wanted), letter = _heard()
        said, fragments = _opened(letter) if letter else ({"merged": []}, [])
        return News(version, fragments, set(said["merged"]), bool(wanted))

    def send(self, offer: Offer) -> None:
        """Process 0 hands it over."""

    def wait_for(self, version: int) -> None:
        """Process 0 waits, and this process for what it tells next."""

    def close(self) -> None:
        """Process 0 leaves."""


def enter(begin: Callable[[], tuple[Joined, Mail]], run: Agreed) -> tuple[Joined, Mail]:
    """How an island has joined, and each process's mail; process 0 alone begins.

    Raises:
      ValueError: this process has other settings or another model than process 0.
    """
    if jax.process_count() == 1:
        return begin()
    if jax.process_index() == 0:
        joined, mail = _telling(begin, lambda begun: _of_joined(begun[0], run))
        return joined, Leading(mail)
    (version, _), letter = _heard()
    said, fragments = _opened(letter)
    if others := run.differs(said["run"]):
        raise ValueError(
            f"islands: process {jax.process_index()} has joined otherwise than process "
            f"0 of its island: {others}. Give the same in each process"
        )
    member = Member(said["name"], said["incarnation"])
    return Joined(member, version, fragments), Following()


def on_host(x: Any) -> np.ndarray:
    """A leaf as an array of the host; called by all processes that have parts of it."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable:
        return np.array(x)
    if x.is_fully_replicated:
        return np.array(x.addressable_data(0))
    return np.array(multihost_utils.process_allgather(x, tiled=True))


def _telling(call: Callable[[], _T], told_of: Callable[[_T], _Told]) -> _T:
    """What a call returns, or raises, which the others are told."""
    try:
        answer = call()
    except Exception as error:
        _tell(_Kind.FAILED, _Told(letter=str(error).encode()))
        raise
    except SystemExit:
        _tell(_Kind.ENDED, _Told())
        raise
    _tell(_Kind.ANSWER, told_of(answer))
    return answer


def _tell(kind: _Kind, told: _Told) -> None:
    size = divmod(len(told.letter), _PART)
    _broadcast(np.array([kind, *size, *told.numbers], np.int32))
    if told.letter:
        _broadcast(_padded(told.letter))


def _heard() -> _Told:
    kind, parts, rest, *numbers = map(int, _broadcast(np.zeros(5, np.int32)))
    size = parts * _PART + rest
    letter = _broadcast(_padded(bytes(size))).tobytes()[:size] if size else b""
    if kind != _Kind.ANSWER:
        _stop(kind, letter.decode(errors="replace"))
    return _Told((numbers[0], numbers[1]), letter)


def _stop(kind: int, why: str) -> NoReturn:
    if kind == _Kind.ENDED:
        raise SystemExit(0)
    raise RuntimeError(
        f"islands: process {jax.process_index()} ends because process 0 of its island "
        f"does: {why.removeprefix('islands: ')}"
    )


def _broadcast(array: np.ndarray) -> np.ndarray:
    return np.asarray(multihost_utils.broadcast_one_to_all(array))


def _padded(letter: bytes) -> np.ndarray:
    """The letter in words of 32 bits, which sums leave as they are."""
    size = max(4, 1 << (len(letter) - 1).bit_length())
    return np.frombuffer(letter.ljust(size, b"\0"), np.uint32)


def _of_news(news: News) -> _Told:
    is_new = news.fragments or news.merged
    said = {"merged": sorted(news.merged)}
    letter = _sealed(said, news.fragments) if is_new else b""
    return _Told((news.version, int(news.wanted)), letter)


def _of_joined(joined: Joined, run: Agreed) -> _Told:
    member, version, fragments = joined
    said = {"name": member.name, "incarnation": member.incarnation}
    said |= {"run": run.record()}
    return _Told((version, 0), _sealed(said, fragments))


def _sealed(said: dict[str, Any], fragments: list[Fragment]) -> bytes:
    arrays = {
        f"{i}.{name}": x
        for i, fragment in enumerate(fragments)
        for name, x in fragment.anchor.items()
    }
    listed = [[fragment.number, fragment.version] for fragment in fragments]
    return pack({**said, "fragments": listed}, arrays)


def _opened(letter: bytes) -> tuple[dict[str, Any], list[Fragment]]:
    said, arrays = unpack(_LETTER, letter)
    fragments = [Fragment(number, version, {}) for number, version in said["fragments"]]
    for name, x in arrays.items():
        i, _, leaf = name.partition(".")
        fragments[int(i)].anchor[leaf] = x
    return said, fragments
