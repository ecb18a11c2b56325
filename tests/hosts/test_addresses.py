"""Where processes meet: IPv4 and IPv6, names of both, ports that are held."""

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import jax
import pytest

from relaxjax import hosts
from relaxjax.hosts import _addresses, _join, _rendezvous
from relaxjax.hosts._addresses import Endpoint, connected, endpoint, listeners
from tests.hosts.test_meeting import GUARD, WAIT, Threads
from tests.hosts.test_rendezvous import free_address

V4, V6 = socket.AF_INET, socket.AF_INET6


def free(host: str = "127.0.0.1") -> Endpoint:
    with socket.socket(V6 if ":" in host else V4) as one:
        one.bind((host, 0))
        return Endpoint(host, one.getsockname()[1])


def has_v6() -> bool:
    try:
        free("::1")
    except OSError:
        return False
    return True


v6 = pytest.mark.skipif(not has_v6(), reason="this machine has no IPv6")


@pytest.fixture
def stands_for(monkeypatch) -> Any:
    """Makes names stand for addresses."""
    real = socket.getaddrinfo
    table: dict[str, tuple[str, ...]] = {}

    def found(host: str, port: int, **how: Any) -> list[Any]:
        if host not in table:
            return real(host, port, **how)
        return [one for number in table[host] for one in real(number, port, **how)]

    monkeypatch.setattr(_addresses.socket, "getaddrinfo", found)
    return table.__setitem__


def listening(at: Endpoint) -> list[str]:
    sockets = listeners(at)
    found = [one.getsockname()[0] for one in sockets]
    for one in sockets:
        one.close()
    return found


def test_forms():
    for text, host, port in (
        ("10.0.0.1:29400", "10.0.0.1", 29400),
        (" node-1.cluster:1 ", "node-1.cluster", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:29400", "fe80::1%eth0", 29400),
    ):
        assert endpoint(text, "x") == (host, port)
        assert str(endpoint(text, "x")) == text.strip()
    wrong = ("", "a", "a:", ":1", "a:0", "a:65536", "a:99999", "a:1:2", "::1:29400")
    for text in (*wrong, "[]:1", "[::1]", "a:-1", "a:1 2", "[a:1", "http://a:1"):
        with pytest.raises(ValueError, match=r"addr=.*must be HOST:PORT, or \[IPV6"):
            endpoint(text, "addr")


def test_it_listens_at_the_given_address_alone(stands_for):
    at = free()
    assert listening(at) == ["127.0.0.1"]
    assert listening(free()._replace(host="0.0.0.0")) == ["0.0.0.0"]
    assert listening(free()._replace(host="localhost"))[0] in ("127.0.0.1", "::1")
    stands_for("elsewhere-and-here", ("203.0.113.1", "127.0.0.1"))  # one is not ours
    assert listening(free()._replace(host="elsewhere-and-here")) == ["127.0.0.1"]


def test_a_name_that_is_only_known_as_loopback_listens_everywhere(stands_for):
    stands_for("node1", ("127.0.1.1",))
    at = free()._replace(host="node1")
    assert _addresses.stands_for_all(at)
    assert "0.0.0.0" in listening(at)
    stands_for("node2", ("203.0.113.7",))
    for host in ("node2", "127.0.0.1", "::1", "localhost", "203.0.113.7"):
        assert not _addresses.stands_for_all(Endpoint(host, 1))
    assert _addresses.stands_for_all(Endpoint("::", 1))


def test_an_address_that_is_not_of_this_machine():
    with pytest.raises(OSError, match=r"BIND_ADDRESS=0\.0\.0\.0:PORT for proc") as info:
        listeners(free()._replace(host="203.0.113.1"))
    assert info.value.errno == errno.EADDRNOTAVAIL
    with pytest.raises(OSError, match=r"cannot listen at no-such-host\.invalid:1"):
        listeners(Endpoint("no-such-host.invalid", 1))


def test_one_address_that_is_taken_is_an_error(stands_for):
    """Also where another is not of this machine: no half of a name will do."""
    stands_for("both", ("127.0.0.1", "203.0.113.1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = Endpoint("both", taken.getsockname()[1])
        with pytest.raises(OSError, match="Is a process of an earlier run still there"):
            listeners(at)


def test_each_address_of_a_name_has_its_turn(stands_for, monkeypatch):
    monkeypatch.setattr(_addresses, "_CONNECT", 0.2)
    at, soon = free(), _addresses.time.monotonic() + 10
    stands_for("name", ("127.0.0.2", "127.0.0.1"))
    crowd = [socket.socket() for _ in range(4)]
    with (
        socket.create_server(at) as server,
        socket.create_server(("127.0.0.2", at.port), backlog=0),
    ):
        for one in crowd:  # so many that the first address answers nobody else
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", at.port))
        with connected(at._replace(host="name"), soon) as line:
            assert line.getpeername() == server.getsockname()
    for one in crowd:
        one.close()
    with pytest.raises(OSError, match="timed out"):
        connected(at, _addresses.time.monotonic() - 1)


@v6
@pytest.mark.parametrize("name", ["::1", "only-v6"])
def test_a_meeting_by_ipv6(stands_for, name):
    stands_for("only-v6", ("::1",))
    at = str(free("::1")._replace(host=name))
    pool = Threads()
    both = [
        pool.submit(_rendezvous.rendezvous, at, 2, i, versions={}, wait=WAIT)
        for i in (0, 1)
    ]
    tables = [one.result(GUARD) for one in both]
    assert tables[0] == tables[1]
    assert tables[0][1].address == "::1"


@v6
def test_ipv6_leaves_ipv4_alone():
    """Both listen at one port where a name stands for both."""
    at = free("::1")
    with socket.create_server(("127.0.0.1", at.port)):
        assert listening(at) == ["::1"]
    everywhere = listening(free()._replace(host="::"))
    assert everywhere == ["::", "0.0.0.0"]


@pytest.fixture
def holder(request) -> Iterator[str]:
    """A program that holds the port, and greets with something, or with nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        lines: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    line = server.accept()[0]
                    lines.append(line)
                    line.sendall(request.param)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for line in lines:
            line.close()


GRPC = bytes.fromhex("00002404000000000000020000000000030000000000040000ffff")


@pytest.mark.parametrize(
    "holder",
    [GRPC, b"", b"HTTP/1.1 400 Bad\r\n\r\n", b"x" * 9999],
    ids=["gRPC", "silent", "HTTP", "long"],
    indirect=True,
)
def test_a_port_that_something_else_holds(holder, monkeypatch):
    """Each process says so: the first at once, the others when time is over."""
    monkeypatch.setattr(_rendezvous, "_GREETING", 0.1)
    with pytest.raises(TimeoutError, match=f"{holder}, in 0.3 s .something else list"):
        _rendezvous.rendezvous(holder, 2, 1, versions={}, wait=0.3)
    with pytest.raises(OSError, match=f"cannot listen at {holder}"):
        _rendezvous.rendezvous(holder, 2, 0, versions={}, wait=0.3)


def test_a_second_join_is_named(monkeypatch):
    """Also after `jax.distributed.initialize`, where join alone would find nobody."""
    for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.delenv(f"JAX_{name}", raising=False)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(_join, "rendezvous", None)
    calls: list[Any] = [(), (free_address(), 2, 1)]
    for given in calls:
        with pytest.raises(RuntimeError, match="this process has joined already"):
            hosts.join(*given)
