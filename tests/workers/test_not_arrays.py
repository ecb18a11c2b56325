"""Models with leaves that are no arrays, as Equinox has them, are refused by name."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import sparse

import relaxjax
from relaxjax import schedule
from tests.helpers import mesh_of
from tests.test_contract import ROWS

MESH = relaxjax.emulate(4)
TX = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    """A layer whose activation is a leaf, as in `equinox.nn.MLP`."""

    weight: Any
    activation: Any


def unit_step(x):
    return jnp.where(x > 0, 1.0, 0.0)


def model(activation: Any) -> Any:
    return {"layers": [Layer(jnp.ones((4, 3)), activation)]}


def loss(params):
    return params["layers"][0].weight.sum()


def train(params):
    step = relaxjax.data_parallel(lambda params, batch: (params, {}), MESH)
    return step(params, jnp.ones(4))


DOORS = {
    "init": lambda p: relaxjax.init(TX, p, MESH),
    "init, reduced in the step": lambda p: relaxjax.init(
        optax.sgd(0.1), p, MESH, reduced_in_step=True
    ),
    "to_workers": lambda p: relaxjax.to_workers(p, MESH),
    "data_parallel": train,
    "consensus": relaxjax.consensus,
    "spread": relaxjax.spread,
    "consensus_distance": relaxjax.consensus_distance,
    "explain": lambda p: relaxjax.explain(TX, p, MESH),
    "wire_bytes": lambda p: relaxjax.wire_bytes(TX, p, MESH),
    "backward_order": lambda p: schedule.backward_order(loss, p),
    "Graph.from_loss": lambda p: schedule.Graph.from_loss(loss, p),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_the_leaf_and_the_remedy(door):
    with pytest.raises(TypeError) as caught:
        DOORS[door](model(unit_step))
    message = str(caught.value)
    assert "layers/0/activation' is the function unit_step, and not" in message
    assert "eqx.partition(model, eqx.is_inexact_array)" in message
    assert "register_dataclass" in message


@pytest.mark.parametrize(
    "row", [pytest.param(r, id=n) for n, r in ROWS.items() if not r.served]
)
def test_every_transformation_names_it_without_init(row):
    with pytest.raises(TypeError, match="'layers/0/activation' is the function"):
        row.make(optax.identity()).init(model(unit_step))


@pytest.mark.parametrize(
    ("leaf", "kind"),
    [("relu", "of type str"), (object(), "of type object"), (jax.nn.relu, "the func")],
    ids=["name", "object", "custom_jvp"],
)
def test_what_else_is_no_array(leaf, kind):
    with pytest.raises(TypeError, match=f"activation' is {kind}"):
        relaxjax.init(TX, model(leaf), MESH)


def test_what_is_static_or_none_is_no_leaf():
    params, _ = relaxjax.init(TX, model(None), MESH)
    assert params["layers"][0].weight.shape == (4, 4, 3)


def test_leaves_without_a_mean_are_kept_as_the_message_says():
    """Its remedy is what `init` takes, and trains the others."""
    params = {"w": jnp.ones(3), "steps": jnp.arange(2)}
    with pytest.raises(ValueError, match=r"'steps' is int32.*optax\.partition\("):
        relaxjax.init(TX, params, MESH)
    labels = {"w": "trained", "steps": "kept"}
    parts: Any = {"trained": TX, "kept": optax.set_to_zero()}
    tx = optax.partition(parts, labels)
    params, state = relaxjax.init(tx, params, MESH)
    step = relaxjax.data_parallel(
        lambda p, s, batch: (*stepped(tx, p, s, batch), {}), MESH
    )
    params, _, _ = step(params, state, np.arange(4.0, dtype=np.float32))
    np.testing.assert_allclose(params["w"], 1 - 0.1 * 1.5)
    np.testing.assert_array_equal(params["steps"], [[0, 1]] * 4)


def stepped(tx, params, state, batch):
    grads = {"w": jnp.full(3, batch[0]), "steps": jnp.zeros(2, jnp.int32)}
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state


@pytest.mark.parametrize("make", [sparse.BCOO, sparse.BCSR], ids=["BCOO", "BCSR"])
def test_sparse_arrays_are_refused_by_name(make):
    params = {"layer": {"w": make.fromdense(jnp.eye(3))}, "b": jnp.ones(2)}
    message = rf"leaf 'layer/w' is a sparse array \({make.__name__}\)"
    with pytest.raises(TypeError, match=message):
        relaxjax.init(TX, params, MESH)


@pytest.mark.parametrize(
    "how",
    [
        jax.eval_shape,
        lambda f, p: jax.jit(f)(p),
        lambda f, p: f(jax.eval_shape(lambda: p)),
    ],
    ids=["eval_shape", "jit", "shapes"],
)
@pytest.mark.parametrize("door", ["init", "init, reduced in the step", "to_workers"])
@pytest.mark.parametrize("place", [relaxjax.emulate, mesh_of])
def test_shapes_without_numbers_are_refused(place, door, how):
    params = {"w": jnp.ones((3, 2))}
    give = {
        "init": lambda p: relaxjax.init(TX, p, place(4)),
        "to_workers": lambda p: relaxjax.to_workers(p, place(4)),
    }.get(
        door,
        lambda p: relaxjax.init(optax.sgd(0.1), p, place(4), reduced_in_step=True),
    )
    with pytest.raises(TypeError, match="leaf 'w' has a shape and no numbers"):
        how(give, params)
