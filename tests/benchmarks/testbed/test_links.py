"""Loopback paces what it sends; namespaces are made, shaped and taken away."""

import subprocess
from typing import Any

import numpy as np
import pytest

from benchmarks import testbed as host
from benchmarks.testbed import message as _message
from relaxjax.hosts import _links
from tests.benchmarks.testbed.models import towers

MISSING = host.Namespaces.missing()
needs_namespaces = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


class Sink:
    def __init__(self):
        self.pieces = []

    def sendall(self, piece):
        self.pieces.append(bytes(piece))


def test_pace(monkeypatch):
    slept = []
    monkeypatch.setattr(_message.time, "perf_counter", lambda: 0.0)
    monkeypatch.setattr(_message.time, "sleep", slept.append)
    sink: Any = Sink()
    data = np.arange(150_000, dtype=np.uint8)
    pace = _message.Pace(1e5)
    pace.send(sink, data.data)
    assert b"".join(sink.pieces) == data.tobytes()
    assert [len(piece) for piece in sink.pieces] == [65536, 65536, 18928]
    np.testing.assert_allclose(slept, [0.65536, 1.31072, 1.5])
    pace.send(sink, data[:1].data)
    assert slept[-1] == pytest.approx(1.50001)  # all senders share the rate


def test_rates_that_are_none():
    for links in (host.Loopback, host.Namespaces):
        with pytest.raises(ValueError, match="rate must be > 0 bytes per second"):
            links(0)


def test_what_namespaces_need(monkeypatch):
    monkeypatch.setattr(_links.shutil, "which", lambda name: None)
    with pytest.raises(OSError, match=r"'ip' is missing .* Loopback\(\) works"):
        host.Namespaces(1e6)
    monkeypatch.setattr(_links.shutil, "which", lambda name: name)
    monkeypatch.setattr(_links.os, "geteuid", lambda: 1000)
    with pytest.raises(OSError, match="only root can"):
        host.Namespaces(1e6)


def left_over(links: host.Namespaces) -> str:
    found = ""
    for what in ("link", "netns"):
        done = subprocess.run(["ip", what], capture_output=True, text=True, check=True)
        found += "".join(x for x in done.stdout.splitlines() if links._prefix in x)
    return found


@pytest.mark.slow
@needs_namespaces
def test_a_fleet_over_shaped_links():
    links = host.Namespaces(5e6)
    model = towers()
    with host.Fleet(model, workers=2, servers=2, links=links, wait=30) as fleet:
        qdiscs = subprocess.run(["tc", "qdisc"], capture_output=True, text=True)
        assert qdiscs.stdout.count("rate 40Mbit") == 4  # the outer ends
        order = list(model.leaves)[::-1]
        step = fleet.infer(np.ones((2, 3), "f4"), order=order)
        for arrived in step.orders:
            for server in (0, 1):
                own = [n for n in order if fleet.owner[n] == server]
                assert [n for n in arrived if fleet.owner[n] == server] == own
        links.shape(1e6)
        qdiscs = subprocess.run(["tc", "qdisc"], capture_output=True, text=True)
        assert "rate 8Mbit" in qdiscs.stdout
        assert left_over(links)
    assert left_over(links) == ""


@needs_namespaces
def test_namespaces_are_gone_after_a_failure(monkeypatch):
    links = host.Namespaces(5e6)
    run = _links._run

    def refuse(command, **kwargs):
        if "tc qdisc add dev eth0" in command and "n1" in command:
            raise OSError("refused")
        run(command, **kwargs)

    monkeypatch.setattr(_links, "_run", refuse)
    with pytest.raises(OSError, match="refused"):
        host.Fleet(towers(), links=links)
    assert left_over(links) == ""
    with pytest.raises(OSError, match="refused"):
        links.open(["a", "b"])
    assert left_over(links) == ""
    with pytest.raises(OSError, match="ip link add rj1 type nonsense: "):
        run("ip link add rj1 type nonsense")
    with pytest.raises(ValueError, match="201 processes; at most 200"):
        links.open([str(i) for i in range(201)])
