"""HOST:PORT: read, reached and listened at, by IPv4 and IPv6.

A name may stand for several addresses. Who reaches for it tries each in turn, and who
listens does so at all of them that are this machine's.
"""

import errno
import ipaddress
import os
import re
import socket
import time
from contextlib import suppress
from typing import Any, NamedTuple

_FORM = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+)):(\d{1,5})")
_CONNECT = 5.0  # seconds for one address, before the next has its turn
_BACKLOG = 1024
_ALL = ("::", "0.0.0.0")
_ANY = {"0.0.0.0": ("0.0.0.0",), "::": _ALL}
_ABSENT = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}  # not an address of this machine


class Endpoint(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{shown}:{self.port}"


def endpoint(text: str, name: str) -> Endpoint:
    """Reads HOST:PORT or [IPv6]:PORT; `name` is the argument's, for the error.

    Raises:
      ValueError: another form, or no port from 1 to 65535.

    Example:
      >>> endpoint("[::1]:29400", "coordinator_address")
      Endpoint(host='::1', port=29400)
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or not 0 < int(match[3]) < 65536:
        raise ValueError(
            f"join: {name}={text!r}; it must be HOST:PORT, or [IPV6]:PORT in brackets: "
            "the address of process 0 and a free port there, 1 to 65535"
        )
    return Endpoint(match[1] or match[2], int(match[3]))


def connected(at: Endpoint, until: float) -> socket.socket:
    """A connection, made before a moment of `time.monotonic`.

    Raises:
      OSError: nobody listens there, or the time is over.
    """
    failure: OSError = TimeoutError("timed out")
    for family, kind, protocol, _, address in _found(at):
        left = until - time.monotonic()
        if left <= 0:
            break
        connection = socket.socket(family, kind, protocol)
        connection.settimeout(min(left, _CONNECT))
        try:
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


def stands_for_all(at: Endpoint) -> bool:
    """Whether process 0 listens on every interface.

    It does where it is told to, and where the name of this machine stands for 127.0.0.1
    in its own /etc/hosts, and for another address on other machines.
    """
    if at.host in _ANY:
        return True
    if at.host == "localhost" or _is_number(at.host):
        return False
    found = [ipaddress.ip_address(address[0]) for *_, address in _found(at)]
    return all(number.is_loopback for number in found)


def listeners(at: Endpoint) -> list[socket.socket]:
    """Sockets that listen at all addresses of a host that are this machine's.

    Raises:
      OSError: the name has no address, or an address is taken; the message says what
        helps.
    """
    sockets: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, address in _places(at):
            try:
                sockets.append(_listener(family, address))
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
        if absent and not sockets:
            raise absent
    except OSError as error:
        for one in sockets:
            one.close()
        raise _explained(at, error) from error
    return sockets


def _places(at: Endpoint) -> list[tuple[int, Any]]:
    """Families and addresses to listen at."""
    hosts = _ANY.get(at.host, _ALL) if stands_for_all(at) else (at.host,)
    found = [_found(Endpoint(host, at.port)) for host in hosts]
    return [(family, address) for one in found for family, *_, address in one]


def _found(at: Endpoint) -> list[Any]:
    """What the name stands for; each address once."""
    found = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(found))


def _listener(family: int, address: Any) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it means that two may listen
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(_BACKLOG)
    except OSError:
        one.close()
        raise
    return one


def _explained(at: Endpoint, error: OSError) -> OSError:
    if error.errno == errno.EADDRINUSE:
        remedy = "Is a process of an earlier run still there? Else choose another port"
    else:
        remedy = (
            "Give an address of this machine; where the others reach it by another, "
            "set JAX_COORDINATOR_BIND_ADDRESS=0.0.0.0:PORT for process 0"
        )
    text = f"join: process 0 cannot listen at {at}: {error.strerror}. {remedy}"
    return OSError(error.errno, text)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
