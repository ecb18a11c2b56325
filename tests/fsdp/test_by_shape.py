"""Optimizers that look at a leaf's shape: refused where a worker holds flat slices."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, fsdp, parameter_server, ps

PARAMS = {"matrix": jnp.ones((4, 3)), "vector": jnp.ones(4), "scale": jnp.ones(())}
MESH = {"island": 2, "data": 2}


def matrices(params):
    return jax.tree.map(lambda x: x.ndim > 1, params)


def kinds(params):
    return jax.tree.map(lambda x: "m" if x.ndim > 1 else "v", params)


def by_path(params):
    return jax.tree.map_with_path(lambda path, _: "matrix" in str(path[-1]), params)


def by_size(updates, params=None):
    del params
    return jax.tree.map(lambda x: x / np.sqrt(np.prod(x.shape)), updates)


def start(params):
    return jax.tree.map(lambda x: jnp.full(x.shape, x.ndim, x.dtype), params)


def from_start(updates, state, params=None):
    del params
    return jax.tree.map(jnp.multiply, updates, state), state


PARTS: Any = {"m": optax.sgd(0.5), "v": optax.adam(0.1)}
BY_SHAPE = {
    "mask": (optax.adamw(0.1, mask=matrices), "update 'matrix'"),
    "labels": (optax.partition(PARTS, kinds), "state 'inner_states/v/"),
    "size": (optax.stateless(by_size), "update 'matrix'"),
    "start": (optax.GradientTransformation(start, from_start), "first state 'matrix'"),
}
RATE = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 5, 50)
ELEMENTWISE = {
    "mask": optax.adamw(0.1, mask=matrices(PARAMS)),
    "labels": optax.partition(PARTS, kinds(PARAMS)),
    "schedule": optax.chain(optax.clip(1.0), optax.nadamw(RATE)),
    "injected": optax.inject_hyperparams(optax.lion)(1e-3),
    "positive": optax.chain(optax.adabelief(0.1), optax.keep_params_nonnegative()),
    "with a loss": optax.chain(optax.sgd(0.1), optax.contrib.reduce_on_plateau()),
    "mini-steps": optax.MultiSteps(optax.yogi(0.1), 2).gradient_transformation(),
}  # fmt: skip
INIT: dict[str, Any] = {
    "fsdp": lambda tx: fsdp.init(tx, PARAMS, emulate(2)),
    "layers": lambda tx: fsdp.init(tx, PARAMS, emulate(2), layers=["matrix"]),
    "across": lambda tx: fsdp.init(
        relaxjax.diloco(tx, "island", 10), PARAMS, emulate(MESH), over="data"
    ),
    "by field": lambda tx: fsdp.init(
        relaxjax.desynced(tx, "island", periods={"params": 2}),
        PARAMS,
        emulate(MESH),
        over="data",
    ),
    "pulled": lambda tx: ps.init(tx, PARAMS, emulate(2)),
    "served": lambda tx: relaxjax.init(
        parameter_server(tx, "data"), PARAMS, emulate(2)
    ),
}


@pytest.mark.parametrize(("tx", "what"), BY_SHAPE.values(), ids=BY_SHAPE)
@pytest.mark.parametrize("form", ["fsdp", "pulled", "served"])
def test_who_looks_at_shapes_is_refused(tx, what, form):
    with pytest.raises(ValueError, match=f"something else with the slices of .*{what}"):
        INIT[form](tx)


def test_who_looks_at_paths_is_refused_where_they_change():
    """A `Shard` is a node of the tree; a server's slices lie where their leaves do."""
    tx = optax.adamw(0.1, mask=by_path)
    with pytest.raises(ValueError, match="slices of update 'matrix' than"):
        INIT["fsdp"](tx)
    INIT["served"](tx)


@pytest.mark.parametrize("form", ["across", "by field"])
def test_inside_a_relaxation_too(form):
    with pytest.raises(ValueError, match=r"give it as a tree: mask=mask_fn\(params\)"):
        INIT[form](BY_SHAPE["mask"][0])


@pytest.mark.parametrize("tx", ELEMENTWISE.values(), ids=ELEMENTWISE)
@pytest.mark.parametrize("form", ["layers", "across"])
def test_who_does_the_same_with_each_element_is_taken(tx, form):
    INIT[form](tx)


@pytest.mark.parametrize("form", ["fsdp", "pulled", "served"])
def test_the_remedy_decays_matrices_alone(form):
    tx: Any = optax.adamw(0.1, weight_decay=1.0, mask=matrices(PARAMS))
    params, state = INIT[form](tx)
    tx = parameter_server(tx, "data") if form == "served" else tx

    def step(params, state, batch):
        del batch
        zero = jax.tree.map(jnp.zeros_like, params)
        updates, state = tx.update(zero, state, params)
        return optax.apply_updates(params, updates), state, {}

    params, *_ = relaxjax.data_parallel(step, emulate(2))(params, state, jnp.ones(2))
    found = relaxjax.consensus(params)
    np.testing.assert_allclose(found["matrix"], 0.9 * PARAMS["matrix"], rtol=1e-6)
    np.testing.assert_array_equal(found["vector"], PARAMS["vector"])
