"""Params with leaves of no elements: every relaxation passes over them.

The other leaves train as without them, emulated and on a mesh.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import checkpoint, compression, emulate, merges
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from tests import helpers
from tests.test_dtypes import NAMES

WORKERS, STEPS = 4, 3
EMPTY = {"a": jnp.zeros(0), "n": jnp.zeros((0, 3)), "z": jnp.zeros((4, 0))}
RULES = {
    "clipped": merges.clipped(),
    "rda": merges.rda(),
    "median": merges.median(),
    "trimmed": merges.trimmed(1),
    "geometric_median": merges.geometric_median(),
    "centered_clip": merges.centered_clip(1.0),
    "nearest": merges.nearest(1, merges.median()),
}
DRAWN = ("sparta",)  # elements by a key and the leaf's place
WHERE = {"emulated": emulate(WORKERS), "mesh": helpers.mesh_of(WORKERS)}


def named(name: str) -> optax.GradientTransformation:
    if name in RULES:
        mean = relaxjax.all_reduce("data", op=RULES[name])
        return optax.chain(mean, optax.sgd(0.05))
    training = Training(optax.sgd(0.05), 0.05, 100, WORKERS)
    return parse(name).build("data", training)


def trained(name: str, where: str, empty: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    full = {"m": jnp.asarray(rng.normal(size=(16, 12)), jnp.float32)}
    full["w"] = jnp.asarray(rng.normal(size=3), jnp.float32)
    batch = jnp.asarray(rng.normal(size=(WORKERS, 16)), jnp.float32)
    tx, mesh = named(name), WHERE[where]
    params, state = relaxjax.init(tx, full | empty, mesh)

    def loss(p: Any, x: jax.Array) -> jax.Array:
        nothing = sum(jnp.sum(p[k]) for k in empty)
        return jnp.mean((x @ p["m"]) ** 2) + jnp.sum(p["w"] ** 2) * x.mean() + nothing

    def step(p: Any, s: Any, x: jax.Array) -> Any:
        updates, s = tx.update(jax.grad(loss)(p, x), s, p)
        return optax.apply_updates(p, updates), s, {}

    train = relaxjax.data_parallel(step, mesh)
    for _ in range(STEPS):
        params, state, _ = train(params, state, batch)
    assert all(params[k].shape == (WORKERS, *x.shape) for k, x in empty.items())
    return {k: np.asarray(params[k]) for k in full}


@pytest.mark.long  # on JAX 0.10 too, which cuts empty chunks of emulated workers wrong
@pytest.mark.parametrize("rule", RULES)
def test_rules_of_merges_pass_over_them(rule):
    test_leaves_without_elements_change_nothing(rule, "emulated")


@pytest.mark.few(6)
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", [*RULES, *NAMES])
def test_leaves_without_elements_change_nothing(name, where):
    empty = {"z": EMPTY["z"]} if name in DRAWN else EMPTY
    found, expected = (trained(name, where, x) for x in (empty, {}))
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)


FEEDBACKS = {
    "error_feedback": compression.error_feedback,
    "ef21": compression.ef21,
    "loco": compression.loco,
    "econtrol": compression.econtrol,
    "intersection": compression.intersection_feedback,
}


@pytest.mark.parametrize("name", FEEDBACKS)
def test_what_feedback_keeps_of_them_goes_to_other_workers(name):
    code = compression.top_k(0.5) if name == "intersection" else compression.quantize(8)
    tx = relaxjax.all_reduce("data", compressor=FEEDBACKS[name](code))
    params = {"w": jnp.ones((5, 3)), "none": jnp.zeros((0, 3))}
    before, now = (relaxjax.init(tx, params, emulate(n)) for n in (4, 3))
    found, _ = checkpoint.resized(before, like=now)
    assert jax.tree.map(jnp.shape, found) == jax.tree.map(jnp.shape, now)
