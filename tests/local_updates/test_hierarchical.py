"""Hierarchical local SGD against a list of workers in hosts."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, hierarchical_local_sgd
from tests import helpers
from tests.helpers import pulled, targets_of
from tests.local_updates.codes import CODES

RATE, STEPS = 0.1, 30
AXES: Any = {2: "device", 3: ("host", "device")}


def reference(targets: np.ndarray, hosts: int, code) -> list[np.ndarray]:
    """Every third step all meet; every other second one, those of a host."""
    n, d = targets.shape
    per_host = n // hosts
    xs, a = [np.zeros(d) for _ in range(n)], np.zeros(d)
    lost, seen = [np.zeros(d) for _ in range(n)], []
    for step in range(1, STEPS + 1):
        xs = [x - RATE * (x - target) for x, target in zip(xs, targets, strict=True)]
        if step % 3 == 0:
            sent = []
            for i in range(n):
                p = lost[i] + a - xs[i]
                sent.append(code(p))
                lost[i] = p - sent[i]
            a = a - sum(sent) / n
            xs = [a] * n
        elif step % 2 == 0:
            for first in range(0, n, per_host):
                own = slice(first, first + per_host)
                xs[own] = [sum(xs[own]) / per_host] * per_host
        seen.append(np.stack(xs))
    return seen


def mesh_of(sizes: dict[str, int]) -> jax.sharding.Mesh:
    count = int(np.prod(list(sizes.values())))
    devices = jax.devices()[:count]
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), devices=devices)


@pytest.mark.few(2)
@pytest.mark.parametrize(("hosts", "devices"), [(1, 2), (3, 1), (2, 2), (2, 4)])
@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_equals_a_list_of_workers(hosts, devices, code):
    compressor, algorithm, plain = code
    sizes = {"host": hosts, "device": devices}
    average = hierarchical_local_sgd(AXES, compressor=compressor, algorithm=algorithm)
    tx = optax.chain(optax.sgd(RATE), average)
    targets = targets_of(hosts * devices)
    expected = reference(targets, hosts, plain)
    for mesh in (emulate(sizes), mesh_of(sizes)):
        found = pulled(tx, targets, mesh, STEPS)
        for (x, _), ref in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=2e-5)


def test_with_one_period_it_is_local_sgd():
    tx = optax.chain(optax.adam(0.1), hierarchical_local_sgd({3: "data"}))
    same = optax.chain(optax.adam(0.1), relaxjax.local_sgd("data", 3))
    for (x, _), (y, _) in zip(
        pulled(tx, targets_of(4), emulate(4), 9),
        pulled(same, targets_of(4), emulate(4), 9),
        strict=True,
    ):
        np.testing.assert_array_equal(x, y)


def test_the_longest_period_decides_alone():
    """At step 6 both periods end, and only the means over all are sent."""
    sizes = {"host": 2, "device": 4}
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    tx = hierarchical_local_sgd(AXES)

    def bytes_of(tx: Any, start: int = 0) -> int:
        return relaxjax.wire_bytes(tx, params, emulate(sizes), start=start)

    near = bytes_of(relaxjax.all_reduce("device"))
    far = bytes_of(relaxjax.all_reduce(("host", "device")))
    assert [bytes_of(tx, t) for t in range(7)] == [0, near, far, near, 0, far, 0]
    earlier = hierarchical_local_sgd({2: "device", 4: ("host", "device")}, offset=3)
    assert [bytes_of(earlier, t) for t in range(6)] == [far, 0, near, 0, far, 0]


def test_params_and_state_may_be_donated_together():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    tx = hierarchical_local_sgd(AXES, compressor=CODES["sign"][0])
    helpers.assert_no_shared_buffer((params, tx.init(params)))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "axes={} must have a period, such as {4: 'device'"),
        ({0: "device"}, "period=0 must be a whole number"),
        ({2: "device", 4: "host"}, "axes 'host' of period 4 must hold those of .* 2"),
        ({2: "device", 4: "device"}, "must hold those of period 2, 'device', and one"),
        ({4: "device", 2: ("host", "device")}, "axes 'device' of period 4 must hold"),
    ],
)
def test_refuses(axes, message):
    with pytest.raises(ValueError, match=f"hierarchical_local_sgd: .*{message}"):
        hierarchical_local_sgd(axes)


def test_an_offset_is_a_whole_number():
    with pytest.raises(ValueError, match="offset=-1 must be a whole number, 0 or more"):
        hierarchical_local_sgd(AXES, offset=-1)
