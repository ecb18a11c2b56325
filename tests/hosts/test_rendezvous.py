"""Processes find each other, or learn why they cannot."""

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest

from relaxjax import hosts
from relaxjax.hosts._members import Member, Report, problem
from relaxjax.hosts._rendezvous import rendezvous
from relaxjax.workers import _startup_agreement as _agree


def free_address() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


def report(number: int, processes: int = 3, pid: int = 7, **versions: str) -> Report:
    return Report(Member(number, "h", "10.0.0.1", pid), processes, versions)


def answers(*calls: tuple[int, int], wait: float = 30.0, **versions: str) -> list[Any]:
    """What each (number, of how many) gets; `versions` are those of the last."""
    address = free_address()

    def one(at: int) -> Any:
        number, processes = calls[at]
        changed = versions if at == len(calls) - 1 else {}
        all_versions = {"jax": "1", **changed}
        try:
            return rendezvous(
                address, processes, number, versions=all_versions, wait=wait
            )
        except (ValueError, OSError) as error:
            return error

    with ThreadPoolExecutor() as pool:
        return list(pool.map(one, range(len(calls))))


def test_all_get_the_table():
    tables = answers((0, 3), (1, 3), (2, 3))
    assert tables[0] == tables[1] == tables[2]
    assert [member.process_id for member in tables[0]] == [0, 1, 2]
    assert {member.address for member in tables[0]} == {"127.0.0.1"}
    assert str(tables[0][2]).startswith(f"process 2 ({socket.gethostname()}, 127.0.0.1")


def test_all_get_the_error():
    for error in answers((0, 2), (1, 2), jax="2"):
        assert isinstance(error, ValueError)
        assert "different versions:\n  jax: 1 on process 0 (" in str(error)
    for error in answers((0, 3), (2, 3), wait=0.5):
        assert isinstance(error, TimeoutError)
        assert "processes [1] did not come in 0.5 s; came: process 0 (" in str(error)


def test_problems():
    assert problem([report(0), report(1), report(2)]) is None
    wrong = {
        "was told of 4 processes, and process 0 .* of 3": report(1, processes=4),
        "the numbers of 3 processes are 0 to 2": report(3),
        "have the same number: is a process of an earlier run": report(0, pid=8),
        r"x: None on process 0 .*, 5 on process 1": report(1, x="5"),
    }
    for text, other in wrong.items():
        with pytest.raises(ValueError, match=text):
            raise ValueError(problem([report(0), other]))


def test_nobody_there():
    address = free_address()
    with pytest.raises(TimeoutError, match=rf"process 0 at {address}, in 0.3 s \("):
        rendezvous(address, 2, 1, versions={}, wait=0.3)
    with pytest.raises(ValueError, match=r"'nowhere'; it must be HOST:PORT"):
        rendezvous("nowhere", 2, 1, versions={}, wait=0.3)


def test_a_port_that_is_taken():
    with socket.create_server(("", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot listen at {address}: Address alr"):
            rendezvous(address, 2, 0, versions={}, wait=0.3)


def test_strangers_are_passed_over():
    address = free_address()
    host, port = address.split(":")

    def stranger() -> None:
        while True:
            try:
                with socket.create_connection((host, int(port)), 30) as line:
                    line.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    return
            except ConnectionRefusedError:
                pass

    with ThreadPoolExecutor() as pool:
        first = pool.submit(rendezvous, address, 2, 0, versions={}, wait=60)
        pool.submit(stranger).result()
        second = pool.submit(rendezvous, address, 2, 1, versions={}, wait=60)
        assert first.result() == second.result()


@pytest.fixture
def _alone(monkeypatch):
    for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.delenv(f"JAX_{name}", raising=False)


@pytest.mark.usefixtures("_alone")
def test_incomplete_descriptions(monkeypatch):
    assert len(hosts.join().members) == 1
    with pytest.raises(ValueError, match=r"num_processes \(JAX_NUM_PROCESSES\) not"):
        hosts.join("127.0.0.1:1", process_id=0)
    with pytest.raises(ValueError, match="process_id=2 of num_processes=2; it must be"):
        hosts.join("127.0.0.1:1", 2, 2)
    monkeypatch.setenv("JAX_NUM_PROCESSES", "1")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    with pytest.raises(ValueError, match="process_id=1 of num_processes=1; it must be"):
        hosts.join()
    monkeypatch.delenv("JAX_NUM_PROCESSES")
    monkeypatch.setenv("JAX_PROCESS_ID", "one")
    with pytest.raises(ValueError, match="JAX_PROCESS_ID='one'; process_id must be"):
        hosts.join("127.0.0.1:1", 2)


def test_join_comes_first():
    """JAX knows its devices after the first computation: those of one process."""
    jax.devices()
    with pytest.raises(RuntimeError, match=r"call hosts.join\(\) first, before params"):
        hosts.join(free_address(), 2, 1)
    assert len(hosts.join().members) == 1  # alone there is nobody to join


def test_versions_of_what_is_not_there(monkeypatch):
    monkeypatch.setattr(_agree, "_PACKAGES", ("no-such-package",))
    assert _agree.versions()["no-such-package"] == "not installed"
