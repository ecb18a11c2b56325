"""Streaming DiLoCo against torchft's fixtures and a list of workers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate
from relaxjax.tasks import TASKS
from tests import helpers
from tests.helpers import mesh_of

RATE, ETA, MU, STEPS = 0.1, 0.7, 0.9, 30
NAMES = ("a", "b", "c")
SIZES = (6, 4, 3)
FRAGMENT = {"a": 0, "b": 1, "c": 2}


def walk(tx: Any, steps: int) -> dict[str, np.ndarray]:
    """Each fragment's params after each step; inner steps are -2, from 1."""

    def run(x):
        def step(carry, _):
            x, state = carry
            moved, state = tx.update(jax.tree.map(jnp.ones_like, x), state, x)
            x = optax.apply_updates(x, moved)
            return (x, state), x

        return jax.lax.scan(step, (x, tx.init(x)), length=steps)[1]

    start = {"f0": jnp.ones(2), "f1": jnp.ones(2)}
    out = jax.jit(jax.vmap(run, axis_name="data", out_axes=1))(start)
    return {name: np.asarray(x)[:, 0] for name, x in out.items()}


def fixture(**how: Any) -> Any:
    return relaxjax.streaming_diloco(
        optax.sgd(2.0), "data", 6, fragments=2, outer=optax.sgd(2.0), **how
    )


def test_golden_fixture_without_overlap():
    seen = walk(fixture(), 15)
    f0 = [-1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59]
    np.testing.assert_array_equal(seen["f0"], f0)
    f1 = [-1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47]
    np.testing.assert_array_equal(seen["f1"][:12], f1)


@pytest.mark.parametrize("overlap", [0, 2])
def test_golden_fixture_of_keeping_ones_own_model(overlap):
    seen = walk(fixture(mixing=1.0, overlap=overlap), 12)
    for way in seen.values():
        np.testing.assert_array_equal(way, 1 - 2 * np.arange(1, 13))


def streaming_reference(targets, every, overlap, alpha):
    """Fragments by slices of one vector; the inner optimizer is SGD."""
    n, ends = len(targets), np.cumsum(SIZES)
    cuts = [slice(end - size, end) for end, size in zip(ends, SIZES, strict=True)]
    xs, a = np.zeros_like(targets), np.zeros(ends[-1])
    v, sent = np.zeros(ends[-1]), np.zeros_like(targets)
    seen = []
    for step in range(1, STEPS + 1):
        xs = xs - RATE * (xs - targets)
        for place, cut in enumerate(cuts):
            t = (step - 1) % (3 * every) + 1
            if t == (place + 1) * every - overlap:
                sent[:, cut] = a[cut] - xs[:, cut]
            if t == (place + 1) * every:
                mean = sent[:, cut].sum(axis=0) / n
                v[cut] = MU * v[cut] + mean
                a[cut] = a[cut] - ETA * (mean + MU * v[cut])
                xs[:, cut] = (1 - alpha) * a[cut] + alpha * xs[:, cut]
        seen.append(xs.copy())
    return seen


def history(tx: Any, targets: np.ndarray, mesh: Any) -> list[np.ndarray]:
    def split(x):
        ends = np.cumsum(SIZES)[:-1].tolist()
        return dict(zip(NAMES, jnp.split(x, ends, axis=-1), strict=True))

    def gradient(x, batch):
        return jax.tree.map(lambda x, target: x - target[0], x, batch)

    start = split(jnp.zeros(sum(SIZES)))
    data = [split(targets.astype(np.float32))] * STEPS
    found = helpers.history(tx, gradient, start, data, mesh, donate=True)
    return [np.concatenate([x[name] for name in NAMES], axis=1) for x, _ in found]


@pytest.mark.few(1)
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize(("overlap", "alpha"), [(0, 0.0), (2, 0.5)])
def test_equals_a_list_of_workers(n, overlap, alpha):
    targets = np.random.default_rng(n).normal(size=(n, sum(SIZES)))
    tx = relaxjax.streaming_diloco(
        optax.sgd(RATE),
        "data",
        9,
        fragments=3,
        overlap=overlap,
        mixing=alpha,
        fragment_of=FRAGMENT.__getitem__,
    )
    expected = streaming_reference(targets, 3, overlap, alpha)
    for mesh in (emulate(n), mesh_of(n)):
        for x, ref in zip(history(tx, targets, mesh), expected, strict=True):
            np.testing.assert_allclose(x, ref, atol=1e-5)


def test_one_fragment_is_diloco():
    targets = np.random.default_rng(0).normal(size=(4, sum(SIZES)))
    tx = relaxjax.streaming_diloco(optax.sgd(RATE), "data", 4, fragments=1)
    same = relaxjax.diloco(optax.sgd(RATE), "data", 4)
    for x, y in zip(
        history(tx, targets, emulate(4)),
        history(same, targets, emulate(4)),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-7)


def test_a_fragment_is_all_that_travels_at_a_time():
    """Dealt out by size: c alone, 96 elements, then a and b together, 100."""
    params = {"a": jnp.zeros((8, 8)), "b": jnp.zeros((6, 6)), "c": jnp.zeros((12, 8))}
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(4))
    tx = relaxjax.streaming_diloco(optax.adam(0.1), "data", 6, overlap=1)
    each = [relaxjax.wire_bytes(tx, params, emulate(4), start=t) for t in range(6)]
    assert each == [0, 0, 6 * 24 * 4, 0, 0, 6 * (16 + 9) * 4]  # 2 (n - 1) ceil(d / n)
    assert sum(each) == ring


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("fragments", [2, 3, 6])
def test_the_busiest_step_sends_a_fragment_s_share(fragments):
    """Exactly for equal layers, nearly for a model's whole leaves."""

    def peak(params: Any) -> float:
        ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(8))
        tx = relaxjax.streaming_diloco(
            optax.identity(), "data", fragments, fragments=fragments
        )
        steps = range(fragments)
        each = [relaxjax.wire_bytes(tx, params, emulate(8), start=t) for t in steps]
        return fragments * max(each) / ring

    assert peak([jnp.zeros((8, 8))] * 6) == 1
    assert peak(TASKS["chars"](0).params) < 1.02


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"fragments": 4}, "sync_every=6 must be a multiple of fragments=4, such as 8"),
        ({"overlap": 3}, r"overlap=3 must be below sync_every / fragments = 3"),
        ({"overlap": -1}, "overlap=-1 must be a whole number, 0 or more"),
        ({"mixing": 1.1}, r"mixing=1.1 must be in \[0, 1\]"),
        ({"fragments": 0}, "fragments=0 must be a whole number"),
    ],
)
def test_refuses_at_construction(how, message):
    with pytest.raises(ValueError, match=message):
        relaxjax.streaming_diloco(optax.sgd(1.0), "data", 6, **how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"fragments": 6}, "fragment 3 has no leaf of the 3 there are"),
        ({"fragment_of": lambda name: 0}, "fragment 1 has no leaf"),
        ({"fragment_of": lambda name: 2}, r"fragment_of\('a'\) is 2, and must be one"),
    ],
)
def test_refuses_bad_fragments(how, message):
    tx = relaxjax.streaming_diloco(optax.sgd(1.0), "data", 6, **how)
    with pytest.raises(ValueError, match=message):
        tx.init({"a": jnp.zeros(2), "b": jnp.zeros(2), "c": jnp.zeros(2)})
