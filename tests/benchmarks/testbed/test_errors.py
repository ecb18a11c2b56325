"""What is refused, and what goes wrong while processes run: errors, never a hang."""

import multiprocessing
import operator
import os
import signal
import socket
from functools import partial
from threading import Thread
from typing import Any

import numpy as np
import optax
import pytest

from benchmarks import testbed as host
from benchmarks.testbed.checks import owners, shares
from benchmarks.testbed.message import Pace, receive_header, send
from benchmarks.testbed.pulls import Peer, Pulls
from benchmarks.testbed.pushes import Pushes
from benchmarks.testbed.records import Served
from benchmarks.testbed.server import _attend
from benchmarks.testbed.shard import Shard
from relaxjax.hosts import Place
from tests.benchmarks.testbed.models import ADAM, dense, towers

ONE = np.ones(3, "f4")
CLIPPED = partial(optax.chain, optax.identity(), optax.clip_by_global_norm(1.0))


def layer(name: str, needs=None, params: Any = ONE) -> host.Layer:
    return host.Layer(name, operator.mul, params, needs)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "at least one Layer"),
        ([layer("a"), layer("a")], "'a' is taken"),
        ([layer("input")], "'input' is taken"),
        ([layer("a", ("b",)), layer("b")], r"needs \['b'\], which no layer before it"),
        ([layer("a"), layer("b", ("input",))], r"no layer needs layers \['a'\]"),
        ([layer("a", params=())], "nothing is to be pulled"),
    ],
)
def test_models_that_cannot_be(layers, message):
    with pytest.raises(ValueError, match=message):
        host.LayerModel(layers)


def test_a_layer_that_is_none():
    layers: Any = [operator.mul]
    with pytest.raises(TypeError, match=r"layers\[0\] must be of type Layer"):
        host.LayerModel(layers)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("kwargs", "kind", "message"),
    [
        ({"servers": 12}, ValueError, "servers=12, but there are 11 leaves"),
        ({"servers": 0}, ValueError, "servers must be at least 1"),
        ({"workers": 0}, ValueError, "workers must be at least 1"),
        ({"wait": 0}, ValueError, "wait must be > 0"),
        ({"patience": -1}, ValueError, "patience must be > 0"),
        ({"optimizer": ADAM()}, TypeError, "must be a function that makes one"),
        ({"optimizer": CLIPPED}, ValueError, "among all leaves"),
        ({"optimizer": lambda: optax.sgd(0.1)}, TypeError, "not lambdas"),
    ],
)
def test_fleets_that_cannot_be(kwargs, kind, message):
    with pytest.raises(kind, match=message):
        host.Fleet(towers(), **kwargs)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_adaptive_optimizers_of_whole_leaves_are_taken():
    fleet_can = partial(optax.lamb, 0.1)  # looks at a leaf's norm, not at others
    owners(towers(), fleet_can, 1, 2)


def test_rows_that_cannot_be_shared():
    for batch in (np.ones((3, 2)), (np.ones((2, 2)), np.ones((4, 2))), np.ones(())):
        with pytest.raises(ValueError, match="a multiple of 2"):
            shares(batch, 2)


@pytest.fixture(scope="module")
def fleet():
    model = towers()
    with host.Fleet(model, workers=2, wait=30) as fleet:
        yield fleet


@pytest.mark.slow
def test_orders_that_are_none(fleet):
    names = list(fleet.model.leaves)
    for order, message in (
        (names[1:], rf"misses \['{names[0]}'\]"),
        ([*names, "stem/w"], r"repeats \['stem/w'\]"),
        ([*names, "stem/x"], r"names unknown \['stem/x'\]"),
        ([], "misses"),
        ([names, names[:-1]], "misses"),
        ([names], "1 lists for 2 workers"),
        ("stem/w", "must be a list"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            fleet.pull(order=order)
    assert fleet.pull(order=[names, names[::-1]]).orders[1] == tuple(names[::-1])


@pytest.mark.slow
def test_training_without_an_optimizer(fleet):
    with pytest.raises(ValueError, match=r"needs LayerModel\(loss=...\) and Fleet\("):
        fleet.train(np.ones((2, 3)), np.ones((2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "how", "kwargs", "kind", "message"),
    [
        (
            "server 0",
            signal.SIGSTOP,
            {"wait": 0.5},
            host.TransferError,
            r"worker 0: pull of 'stem/b', server 0: no byte came for wait=0.5 s",
        ),
        (
            "server 0",
            signal.SIGKILL,
            {},
            host.TransferError,
            r"worker 0: pull of 'stem/b', server 0: ",
        ),
        (
            "worker 0",
            signal.SIGSTOP,
            {"patience": 15.0},
            host.TransferError,
            r"worker 0: no answer in patience=15.0 s",
        ),
        ("worker 0", signal.SIGKILL, {}, RuntimeError, "worker 0 is gone, exit code"),
    ],
)
def test_processes_that_fall_silent(name, how, kwargs, kind, message, monkeypatch):
    with host.Fleet(towers(), **kwargs) as fleet:
        children = list(fleet._crew.servers + fleet._crew.workers)
        pids = [c.process.pid for c in children]
        if "patience" in kwargs:  # long enough to start, then short
            fleet._crew._plan = fleet._crew._plan._replace(patience=0.5)
            message = message.replace("15.0", "0.5")
        victim = next(c.process.pid for c in children if c.name == name)
        assert victim is not None
        os.kill(victim, how)
        with pytest.raises(kind, match=message):
            fleet.pull()
        assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
        with pytest.raises(ValueError, match="closed"):
            fleet.params()


@pytest.mark.slow
def test_a_layer_that_fails_at_the_worker():
    model = host.LayerModel([host.Layer("a", dense, {"w": np.ones((3, 3), "f4")})])
    with (
        host.Fleet(model) as fleet,
        pytest.raises(RuntimeError, match=r"worker 0: (.|\n)*KeyError: 'b'"),
    ):
        fleet.infer(np.ones((1, 3), "f4"))


class Spec:
    shape, dtype = (2,), np.dtype("f4")


@pytest.fixture
def ends():
    """Two ends of a connection; the near one waits for 0.2 s."""
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(0.2)
        yield near, far


def pulls_from(ends, script) -> Pulls:
    """Pulls of "a" then "b", answered by a function of the server's socket."""
    near, far = ends
    pulls = Pulls([Peer(7, near, 0.2, Pace())], {"a": Spec, "b": Spec}, 0.0)
    pulls.start([["a", "b"]], 0)
    assert receive_header(far) == {"kind": "pull", "order": ["a", "b"], "version": 0}
    script(far)
    return pulls


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (lambda s: None, r"pull of 'b', server 7: no byte came for wait=0.2 s"),
        (lambda s: s.close(), r"pull of 'b', server 7: the connection was closed"),
        (
            lambda s: send(s, {"kind": "leaf", "name": "a"}, np.ones(2, "f4")),
            r"pull of 'b', server 7: it sent 'a' in its place",
        ),
        (
            lambda s: send(s, {"kind": "leaf", "name": "b"}, np.ones(1, "f4")),
            r"pull of 'b', server 7: no byte came",
        ),
        (lambda s: send(s, {"kind": "thanks"}), r"leaf expected, got \{'kind'"),
        (lambda s: send(s, {"kind": "error", "text": "no"}), r"server 7: no"),
        (lambda s: send(s, {"kind": "leaf"}), r"pull of 'b', server 7: .*KeyError"),
        (lambda s: s.sendall(b"\xff\xff\xff\xff"), "speaks something else"),
        (lambda s: s.sendall(b'\0\0\0\x08["kind"]'), "no header"),
    ],
)
def test_a_transfer_that_never_comes(script, message, ends):
    def first_a(far: socket.socket) -> None:
        send(far, {"kind": "leaf", "name": "a"}, np.ones(2, "f4"))
        script(far)

    pulls = pulls_from(ends, first_a)
    with pytest.raises(host.TransferError, match=message):
        pulls.first(lambda: True if len(pulls.leaves) == 2 else None)
    assert [event.name for event in pulls.events] == ["a"]


def test_a_push_that_nobody_takes(ends):
    near, _ = ends
    pushes = Pushes([Peer(3, near, 0.2, Pace())], {"a": 0}, 0.0)
    pushes.add("a", np.ones(1 << 22, "f4"))
    with pytest.raises(host.TransferError, match="push of 'a', server 3: no byte"):
        pushes.finish()


def test_pushes_with_a_strange_answer(ends):
    near, far = ends
    pushes = Pushes([Peer(3, near, 5.0, Pace())], {"a": 0}, 0.0)
    send(far, {"kind": "error"})
    with pytest.raises(host.TransferError, match=r"all pushes, server 3: .*KeyError"):
        pushes.finish()


def test_an_update_that_waits_for_a_worker():
    shard = Shard({"a": ONE}, optax.sgd(1.0), workers=3, wait=0.05)
    shard.add(1, "a", ONE)
    with pytest.raises(host.TransferError, match=r"update 1 of 'a' .* \[0, 2\] are"):
        shard.read("a", 1)
    with pytest.raises(ValueError, match="worker 1 pushed 'a' twice"):
        shard.add(1, "a", ONE)
    with pytest.raises(ValueError, match="'b' does not live here"):
        shard.read("b", 0)
    with pytest.raises(ValueError, match="'a' is not trained"):
        Shard({"a": ONE}, None, workers=1, wait=1).add(0, "a", ONE)


@pytest.mark.long
@pytest.mark.parametrize(
    ("messages", "answer"),
    [
        ([{"kind": "hello", "token": "wrong", "worker": 0}], None),
        (
            [
                {"kind": "hello", "token": "right", "worker": 0},
                {"kind": "pull", "order": ["x"], "version": 0},
            ],
            "leaf 'x' does not live here",
        ),
        (
            [{"kind": "hello", "token": "right", "worker": 0}, {"kind": "sing"}],
            "a message of kind 'sing': unknown",
        ),
    ],
)
def test_strangers_at_a_server(messages, answer, ends):
    near, far = ends
    near.settimeout(10)
    told = Served({"a": ONE}, None, 1, 1.0, "right", Place())
    shard = Shard(told.leaves, None, workers=1, wait=1.0)
    thread = Thread(target=_attend, args=(far, shard, told, Pace()))
    thread.start()
    for message in messages:
        send(near, message)
    if answer:
        assert receive_header(near) == {"kind": "error", "text": answer}
    else:
        assert near.recv(1) == b""
    thread.join(10)
    assert not thread.is_alive()
