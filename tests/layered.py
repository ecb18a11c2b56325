"""Layers in a scan, and a reducer with a residual, for reductions in the backward."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import relaxjax
from relaxjax import all_reduce
from tests import helpers

LAYERS, WIDTH, WORKERS = 3, 4, 4


def layers():
    rng = np.random.default_rng(0)
    return {
        "w": rng.normal(size=(LAYERS, WIDTH, WIDTH)).astype(np.float32) / 2,
        "b": rng.normal(size=(LAYERS, WIDTH)).astype(np.float32) / 2,
    }


def data(rows: int = 8):
    return np.random.default_rng(1).normal(size=(rows, WIDTH)).astype(np.float32)


def layer(p, h):
    return jnp.tanh(h @ p["w"] + p["b"])


def scanned_loss(params, x, wrap=lambda p: p):
    h, _ = lax.scan(lambda h, p: (layer(wrap(p), h), None), x, params)
    return jnp.mean(h**2)


def trained(gradient, tx, mesh, steps=3):
    params, state = relaxjax.init(tx, layers(), mesh, reduced_in_step=True)
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh)
    for _ in range(steps):
        params, state, _ = step(params, state, data())
    assert relaxjax.spread(params) == 0.0
    return jax.tree.map(lambda x: x[0], params)


def after_backward():
    return trained(
        jax.grad(scanned_loss),
        optax.chain(all_reduce("data"), optax.sgd(0.5)),
        helpers.mesh_of(WORKERS),
    )


class Residual(NamedTuple):
    residual: Any


def feedback() -> optax.GradientTransformation:
    """Sends eighths; keeps what they leave over."""

    def init(params) -> Any:
        return Residual(jax.tree.map(jnp.zeros_like, params))

    def update(updates, state, params=None):
        del params
        whole = jax.tree.map(jnp.add, updates, state.residual)
        sent = jax.tree.map(lambda x: jnp.round(8 * x) / 8, whole)
        left = jax.tree.map(jnp.subtract, whole, sent)
        return jax.tree.map(lambda x: lax.pmean(x, "data"), sent), Residual(left)

    return optax.GradientTransformation(init, update)
